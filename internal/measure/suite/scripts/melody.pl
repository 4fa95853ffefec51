srand 1;
my $samples = 44100 * shift;
print pack 'a4Va4a4VvvVVvva4V', 'RIFF', 36 + 4 * $samples, 'WAVE', 'fmt ', 16, 1, 2, 44100, 176400, 4, 16, 'data', 4 * $samples;
for my $i (0 .. $samples - 1) {
    my $tone = 9000 * (1 - $i % 11025 / 11025) * sin 0.0157 * $i * (1 + int($i / 11025) % 5);
    print pack 'ss', $tone + rand 2000, $tone / 2 + rand 3000;
}
