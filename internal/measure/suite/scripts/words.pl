srand 1;
my @words = map { join '', map { chr 97 + int rand 26 } 1 .. 2 + int rand 8 } 1 .. 5000;
for (my $left = shift; $left > 0; ) {
    my $word = $words[5000 * rand() ** 3] . (rand() < 0.1 ? "\n" : ' ');
    print substr $word, 0, $left;
    $left -= length $word;
}
