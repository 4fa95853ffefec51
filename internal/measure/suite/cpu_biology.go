package suite

import (
	"fmt"
	"time"
)

// proteins returns a script that makes two files in FASTA: family, a protein and
// its variants, and database, unrelated proteins of 300 amino acids.
func proteins(family, length, database int) string {
	return fmt.Sprintf(`perl - %d %d %d <<'END'
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
END
`, family, length, database)
}

// hmmer is pts/hmmer: a search by a hidden Markov model, without the filters that
// would leave next to nothing to do in unrelated proteins. HMMER has no thread
// that only reads if it is told of none.
func hmmer(n processors) Case {
	c := timedCase(n.suite, "hmmer", "Search for a protein family", func(_ Profile, r Resources) string {
		workers := n.count(r)
		if workers == 1 {
			workers = 0
		}
		return fmt.Sprintf("hmmsearch --max --cpu %d --noali model database >/dev/null\n", workers)
	}, 15*time.Second)
	c.Tools = []string{"hmmsearch", "hmmbuild", "perl"}
	c.Prepare = func(p Profile, _ Resources) string {
		return proteins(12, 100, pick(p, 150, 20_000)) + "hmmbuild --cpu 0 --amino model family >/dev/null\n"
	}
	return c
}

// mafft is pts/mafft: an alignment of many sequences with local pairs.
func mafft(n processors) Case {
	c := timedCase(n.suite, "mafft", "Alignment of proteins",
		n.command("mafft --quiet --thread %d --localpair --maxiterate 2 family >/dev/null\n",
			"mafft --quiet --thread %d --localpair --maxiterate 10000 family >/dev/null\n"), 15*time.Second)
	c.Tools = []string{"mafft", "perl"}
	c.Prepare = func(p Profile, _ Resources) string { return proteins(pick(p, 8, 60), pick(p, 100, 560), 0) }
	return c
}
