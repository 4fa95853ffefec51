my ($family, $length, $database) = @ARGV;
srand 1;
my $acids = 'ACDEFGHIKLMNPQRSTVWY';
sub acid { substr $acids, rand 20, 1 }
sub chain { join '', map { acid() } 1 .. shift }
my $ancestor = chain($length);
open my $file, '>', 'family' or die;
for my $i (1 .. $family) {
    my $variant = $ancestor;
    substr($variant, rand $length, 1) = acid() for 1 .. $length / 3;
    print $file ">variant$i\n$variant\n";
}
open $file, '>', 'database' or die;
print $file ">protein$_\n", chain(300), "\n" for 1 .. $database;
