package suite

import (
	"fmt"
	"regexp"
	"time"

	"unnest/internal/measure/result"
	"unnest/internal/measure/workload"
)

// java returns the cases of the paper's suite java, §3.3 and §4: SciMark, Bork's
// file encrypter and Sunflow. The composite of SciMark is pts/java-scimark2's
// default, and its parts are cases of their own.
func java() []Case {
	cases := []Case{scimark()}
	for _, part := range []struct{ name, title, call string }{
		{"fft", "Fourier transform in Java", "measureFFT(1024, time, random)"},
		{"sor", "Jacobi over-relaxation in Java", "measureSOR(100, time, random)"},
		{"montecarlo", "Monte Carlo integration in Java", "measureMonteCarlo(time, random)"},
		{"sparse", "Sparse matrix product in Java", "measureSparseMatmult(1000, 5000, time, random)"},
		{"lu", "LU factorization of a dense matrix in Java", "measureLU(100, time, random)"},
	} {
		cases = append(cases, scimarkPart(part.name, part.title, part.call))
	}
	return append(cases, bork(), sunflow())
}

// scimarkJar is SciMark 2.0a by its authors at NIST.
var scimarkJar = File{
	Maven:  "gov.nist.math:scimark:2.0",
	SHA256: "6f84f949c3167b385da1a9957ecd53fe0111b42e981e0c481be53dba0504305f",
	Path:   "/usr/local/share/java/scimark-2.0.jar",
}

// javac compiles a class: the Debian package of the runtime brings the compiler
// as a module, though not its command.
func javac(class, classpath, source string) string {
	return fmt.Sprintf("cat >%[1]s.java <<'END'\n%[3]sEND\njava -m jdk.compiler/com.sun.tools.javac.Main -cp %[2]s %[1]s.java\n",
		class, classpath, source)
}

// javaCase is a case that the Java runtime runs.
func javaCase(name, title string) Case {
	return Case{
		Suite: "java", Name: "java-" + name, Title: title,
		Package: "default-jre-headless", Tools: []string{"java"}, Wall: wall(15*time.Second, 90*time.Second),
	}
}

// scimark is all of SciMark, with at least 2 s for each part in the paper's profile.
func scimark() Case {
	c := javaCase("scimark", "SciMark, composite")
	c.Metrics, c.Files = oneRate("Mflops"), []File{scimarkJar}
	c.Run = func(p Profile, _ Resources) string {
		return fmt.Sprintf("java -cp %s jnt.scimark2.commandline %s\n", scimarkJar.Path, pick(p, "0.02", "2.0"))
	}
	c.Parse = number("throughput", `(?m)^Composite Score: ([\d.]+)$`)
	return c
}

// scimarkPart is one part of SciMark, of the size and by the seed of the composite.
func scimarkPart(name, title, call string) Case {
	c := javaCase("scimark-"+name, title)
	c.Metrics, c.Files = oneRate("Mflops"), []File{scimarkJar}
	c.Prepare = func(Profile, Resources) string {
		return javac("Part", scimarkJar.Path, fmt.Sprintf(`public class Part {
    public static void main(String[] args) {
        double time = Double.parseDouble(args[0]);
        jnt.scimark2.Random random = new jnt.scimark2.Random(101010);
        System.out.println("Mflops " + jnt.scimark2.kernel.%s);
    }
}
`, call))
	}
	c.Run = func(p Profile, _ Resources) string {
		return fmt.Sprintf("java -cp .:%s Part %s\n", scimarkJar.Path, pick(p, "0.1", "2.0"))
	}
	c.Parse = number("throughput", `(?m)^Mflops ([\d.]+)$`)
	return c
}

// bork encrypts a file as Bork does, which Debian has not: a key out of a
// password, then AES into a file beside it.
func bork() Case {
	c := javaCase("bork", "Encryption of a file in Java")
	c.Metrics = []result.Metric{seconds}
	c.Prepare = func(p Profile, r Resources) string {
		return words(3*mib, 256*mib)(p, r) + javac("Bork", ".", borkSource)
	}
	c.Tools = append(c.Tools, "perl")
	c.Run = elapsed(func(Profile, Resources) string { return "java Bork text phoronixtestsuite123\nrm text.bork\n" })
	c.Parse = readElapsed
	return c
}

const borkSource = `import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import javax.crypto.Cipher;
import javax.crypto.CipherOutputStream;
import javax.crypto.SecretKeyFactory;
import javax.crypto.spec.IvParameterSpec;
import javax.crypto.spec.PBEKeySpec;
import javax.crypto.spec.SecretKeySpec;

public class Bork {
    public static void main(String[] args) throws Exception {
        PBEKeySpec password = new PBEKeySpec(args[1].toCharArray(), new byte[16], 4096, 256);
        byte[] key = SecretKeyFactory.getInstance("PBKDF2WithHmacSHA256").generateSecret(password).getEncoded();
        Cipher cipher = Cipher.getInstance("AES/CBC/PKCS5Padding");
        cipher.init(Cipher.ENCRYPT_MODE, new SecretKeySpec(key, "AES"), new IvParameterSpec(new byte[16]));
        try (InputStream in = Files.newInputStream(Path.of(args[0]));
             OutputStream out = new CipherOutputStream(Files.newOutputStream(Path.of(args[0] + ".bork")), cipher)) {
            in.transferTo(out);
        }
    }
}
`

const sunflowPath = "/usr/share/java/sunflow.jar"

// sunflow is pts/sunflow: Sunflow's own scene, checked against an image that
// Debian leaves out and Prepare therefore renders.
func sunflow() Case {
	c := javaCase("sunflow", "Ray tracing in Java")
	c.Package += " libsunflow-java"
	c.Metrics = []result.Metric{seconds}
	c.Prepare = func(p Profile, _ Resources) string {
		return "mkdir -p resources\n" + javac("Golden", sunflowPath, goldenSource) +
			fmt.Sprintf("java -cp .:%s Golden %d >&2\n", sunflowPath, sunflowSize(p))
	}
	c.Run = func(p Profile, r Resources) string {
		return timed(fmt.Sprintf("java -cp .:%s org.sunflow.Benchmark -bench %d %d 2>&1", sunflowPath, r.VCPUs, sunflowSize(p)))
	}
	c.Parse = readSunflow
	c.Wall = wall(25*time.Second, 5*time.Minute)
	return c
}

// sunflowSize is the height and width in pixels.
func sunflowSize(p Profile) int { return pick(p, 16, 256) }

const goldenSource = `public class Golden {
    public static void main(String[] args) {
        new org.sunflow.Benchmark(Integer.parseInt(args[0]), false, true, true, 1, false).kernelMain();
    }
}
`

var sunflowPassed = regexp.MustCompile(`(?m)^BENCH  info  : Image check passed!$`)

// readSunflow reads the seconds of a run whose image was the right one.
func readSunflow(output []byte) ([]workload.Value, error) {
	if !sunflowPassed.Match(output) {
		return nil, fmt.Errorf("read seconds of an image that passed its check: %w", missing(output))
	}
	return readElapsed(output)
}
