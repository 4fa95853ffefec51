package suite

import (
	"fmt"
	"time"

	"unnest/internal/measure/result"
)

// kernelFiles is how many files Linux 2.6.32 has, which the paper unpacked; the
// trees of Compile Bench are of about that size too.
const kernelFiles = 30_500

// treePerl makes and reads source trees, in perl because Debian's smallest system
// has it: tree.pl text BYTES makes a text, tree.pl create|compile|read DIRECTORY
// TREES FILES makes trees of pieces of the text on standard input, and works on them. Sizes are 0.5 to 46.5 KiB,
// 12 KiB on average and most of them small, as in the kernel, and 16 files share
// a directory. The contents are words that compress about as source does, and the
// same on every machine. It prints the bytes that it read and wrote.
const treePerl = `
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
`

// withTreePerl returns a script that makes tree.pl and a text of so many bytes,
// and runs body. Trees of much more than the text repeat it, and compress better.
func withTreePerl(text int64, body string) string {
	return "cat >tree.pl <<'END'" + treePerl + fmt.Sprintf("END\nperl tree.pl text %d >text\n", text) + body
}

// compileBench is the paper's Compile Bench: creating source trees, compiling
// them (reading every source, and writing an object as large) and reading
// sources and objects. The program itself is a script for Python 2, which Debian
// no longer has. As there, nothing is synchronized.
func compileBench() []Case {
	perl := func(p Profile, mode, under string) string {
		return fmt.Sprintf("perl tree.pl %s %s %d %d <text", mode, under, pick(p, 1, 10), pick(p, 1000, kernelFiles))
	}
	compiled := func(p Profile) string {
		return "rm -rf trees\nmkdir trees\n" + perl(p, "create", "trees") + " >/dev/null\n"
	}
	bench := func(name, title, paper string, prepare, run func(Profile) string) Case {
		return Case{
			Suite: "disk", Name: "compilebench-" + name, Title: title, Paper: paper,
			Package: "perl-base", Tools: []string{"perl"}, Metrics: oneRate("MB/s"),
			Prepare: func(p Profile, _ Resources) string { return withTreePerl(mib, prepare(p)) },
			Run:     func(p Profile, _ Resources) string { return run(p) },
			Parse:   over(`(?m)^bytes (\d+)$`, megabyte),
			Wall:    wall(20*time.Second, 20*time.Minute),
		}
	}
	return []Case{
		bench("create", "Creation of source trees", "Compile Bench1",
			func(Profile) string { return "" },
			func(p Profile) string { return scratch(timed(perl(p, "create", "scratch"))) }),
		bench("compile", "Reading of sources and writing of objects", "Compile Bench2",
			compiled,
			func(p Profile) string {
				return "trap 'find trees -name \"*.o\" -delete' EXIT\n" + timed(perl(p, "compile", "trees"))
			}),
		bench("read", "Reading of compiled trees", "Compile Bench3",
			func(p Profile) string { return compiled(p) + perl(p, "compile", "trees") + " >/dev/null\n" },
			func(p Profile) string { return timed(perl(p, "read", "trees")) }),
	}
}

// unpack is the paper's unpacking of the Linux kernel, 2.6.32 as tar.bz2. The
// kernel is a generated tree with as many files.
func unpack() Case {
	return Case{
		Suite: "disk", Name: "unpack", Title: "Unpacking of a source tree", Paper: "Unpacking",
		Package: "bzip2", Tools: []string{"tar", "bzip2", "perl"}, Metrics: []result.Metric{seconds},
		Prepare: func(p Profile, _ Resources) string {
			return withTreePerl(pick(p, 2*mib, 16*mib), "rm -rf trees\nmkdir trees\n"+
				fmt.Sprintf("perl tree.pl create trees 1 %d <text >/dev/null\n", pick(p, 150, kernelFiles))+
				"tar -c --sort=name trees | bzip2 >tree.tar.bz2\nrm -rf trees tree.pl text\n")
		},
		Run:   func(Profile, Resources) string { return scratch(timed("tar -xjf tree.tar.bz2 -C scratch")) },
		Parse: readElapsed,
		Wall:  wall(20*time.Second, 10*time.Minute),
	}
}
