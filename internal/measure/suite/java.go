package suite

import (
	"fmt"
	"regexp"
	"time"

	"unnest/internal/measure/result"
	"unnest/internal/measure/workload"
)

// scimarkJar is SciMark 2.0a by its authors at NIST.
var scimarkJar = File{
	Maven:  "gov.nist.math:scimark:2.0",
	SHA256: "6f84f949c3167b385da1a9957ecd53fe0111b42e981e0c481be53dba0504305f",
	Path:   "/usr/local/share/java/scimark-2.0.jar",
}

const sunflowJar = "/usr/share/java/sunflow.jar"

// java returns the cases of the paper's suite java, §3.3 and §4: SciMark, Bork's
// file encrypter and Sunflow. The composite of SciMark is pts/java-scimark2's
// default; its parts are cases too.
func java() []Case {
	jre := func(name, title string) Case {
		return Case{
			Suite: "java", Name: "java-" + name, Title: title,
			Package: "default-jre-headless", Tools: []string{"java"}, Wall: wall(15*time.Second, 90*time.Second),
		}
	}
	scimark := func(name, title, run, figure string) Case {
		c := jre(name, title)
		c.Metrics, c.Files = oneRate("Mflops"), []File{scimarkJar}
		c.Run, c.Parse = script("java -cp "+run+"\n"), number("throughput", `(?m)^`+figure+` ([\d.]+)$`)
		return c
	}
	// Each part has at least 2 s in the paper's profile.
	cases := []Case{scimark("scimark", "SciMark, composite",
		scimarkJar.Path+` jnt.scimark2.commandline {{.Pick "0.02" "2.0"}}`, "Composite Score:")}
	for _, part := range []struct{ name, title, call string }{
		{"fft", "Fourier transform in Java", "measureFFT(1024, time, random)"},
		{"sor", "Jacobi over-relaxation in Java", "measureSOR(100, time, random)"},
		{"montecarlo", "Monte Carlo integration in Java", "measureMonteCarlo(time, random)"},
		{"sparse", "Sparse matrix product in Java", "measureSparseMatmult(1000, 5000, time, random)"},
		{"lu", "LU factorization of a dense matrix in Java", "measureLU(100, time, random)"},
	} {
		c := scimark("scimark-"+part.name, part.title, ".:"+scimarkJar.Path+` Part {{.Pick "0.1" "2.0"}}`, "Mflops")
		c.Prepare = script(javac("Part", scimarkJar.Path, fmt.Sprintf("%q", part.call)))
		cases = append(cases, c)
	}

	// Debian does not have Bork. This does the same: a key from a password, then AES into
	// a second file.
	bork := jre("bork", "Encryption of a file in Java")
	bork.Tools, bork.Metrics, bork.Parse = []string{"java", "perl"}, []result.Metric{seconds}, readElapsed
	bork.Prepare = script(words(3*mib, 256*mib) + javac("Bork", ".", ""))
	bork.Run = script(timed("java Bork text phoronixtestsuite123\nrm text.bork\n"))

	// Sunflow's own scene, checked against an image that Debian leaves out. Prepare
	// renders that image.
	sunflow := jre("sunflow", "Ray tracing in Java")
	sunflow.Package += " libsunflow-java"
	sunflow.Metrics, sunflow.Parse, sunflow.Wall = []result.Metric{seconds}, readSunflow, wall(25*time.Second, 5*time.Minute)
	sunflow.Prepare = script("mkdir -p resources\n" + javac("Golden", sunflowJar, "") +
		"java -cp .:" + sunflowJar + " Golden {{.Pick 16 256}} >&2\n")
	sunflow.Run = script(timed("java -cp .:" + sunflowJar + " org.sunflow.Benchmark -bench {{.Threads}} {{.Pick 16 256}} 2>&1"))
	return append(cases, bork, sunflow)
}

// javac returns a script that compiles a class of scripts/, whose template has the
// argument. Debian's package of the runtime has the compiler as a module, without its
// command.
func javac(class, classpath, argument string) string {
	return fmt.Sprintf("cat >%[1]s.java <<'END'\n{{template \"%[1]s.java\" %[3]s}}END\n"+
		"java -m jdk.compiler/com.sun.tools.javac.Main -cp %[2]s %[1]s.java\n", class, classpath, argument)
}

var sunflowPassed = regexp.MustCompile(`(?m)^BENCH  info  : Image check passed!$`)

// readSunflow reads the seconds of a run whose image was the right one.
func readSunflow(output []byte) ([]workload.Value, error) {
	if !sunflowPassed.Match(output) {
		return nil, fmt.Errorf("read seconds of an image that passed its check: %w", missing(output))
	}
	return readElapsed(output)
}
