my ($width, $height, $frames) = @ARGV;
srand 1;
my $noise = join '', map { chr 96 + int rand 64 } 1 .. 2 * $width * $height;
open my $header, '>', 'header' or die;
print $header "YUV4MPEG2 W$width H$height F25:1 Ip A1:1 C420jpeg\n";
open my $file, '>', 'frames' or die;
for my $i (0 .. $frames - 1) {
    print $file "FRAME\n", substr($noise, $i * ($width + 3), $width * $height), substr($noise, $i * 5, $width * $height / 2);
}
