my ($width, $height) = @ARGV;
srand 1;
my $noise = join '', map { chr rand 256 } 1 .. 6 * $width;
print "P6\n$width $height\n255\n", map { substr $noise, 7 * $_ % (3 * $width), 3 * $width } 1 .. $height;
