use strict;
my ($mode, $under, $trees, $files) = @ARGV;
my ($x, $bytes) = (1, 0);
sub draw { $x = $x * 48271 % 2147483647; return $x / 2147483647 }

sub text {
  my ($length) = @_;
  my @words = map { join '', map { chr(97 + 25 * draw()) } 0 .. 2 + 8 * draw() } 1 .. 4000;
  my $text = '';
  $text .= $words[4000 * draw() ** 2] . (draw() < 0.12 ? ";\n\t" : ' ') while length $text < $length;
  return $text;
}

sub put {
  my ($name, $data) = @_;
  open my $f, '>', $name or die "$name: $!\n";
  print $f $data or die "$name: $!\n";
  close $f or die "$name: $!\n";
  $bytes += length $data;
}

sub get {
  my ($name) = @_;
  open my $f, '<', $name or die "$name: $!\n";
  local $/;
  my $data = <$f>;
  $bytes += length $data;
  return $data;
}

if ($mode eq 'text') {
  print text($under);
  exit;
}
my $text = '';
if ($mode eq 'create') {
  local $/;
  $text = <STDIN>;
}

sub visit {
  my ($tree, $i) = @_;
  my $directory = sprintf '%s/d%05d', $tree, $i / 16;
  my $name = sprintf '%s/f%06d', $directory, $i;
  if ($mode eq 'create') {
    mkdir $directory or die "$directory: $!\n" if $i % 16 == 0;
    my $size = int(512 + 47104 * draw() ** 3);
    put("$name.c", substr $text, (length($text) - $size) * draw(), $size);
  } elsif ($mode eq 'compile') {
    put("$name.o", get("$name.c"));
  } else {
    get("$name.c");
    get("$name.o");
  }
}

for my $tree (map { "$under/$_" } 1 .. $trees) {
  mkdir $tree or die "$tree: $!\n" if $mode eq 'create';
  visit($tree, $_) for 0 .. $files - 1;
}
print "bytes $bytes\n";
