package e2e

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
	"golang.org/x/sys/unix"

	"unnest/internal/measure/result"
	"unnest/internal/measure/suite"
	"unnest/internal/testbed/guest"
	"unnest/internal/testbed/lab"
)

// The cases of these tests are all of one package, so that the experiments share an
// image. gzip is in every Debian.
const (
	memoryRead  = "sysbench-memory-read"
	memoryWrite = "sysbench-memory-write"
	primes      = "sysbench-cpu"
	gzipFile    = "gzip-file"
)

// writeExperiment writes an experiment of cases, by their names, in configurations,
// each in YAML, and returns its path and a run directory.
func writeExperiment(t *testing.T, cases []string, configurations ...string) (file, dir string) {
	t.Helper()
	text := "name: suites\nguest: {vcpus: 1, memory: 1GiB}\nrepetitions: 2\nwarmup: 0\nretries: 0\nconfigurations:\n"
	for _, c := range configurations {
		text += "  - " + c + "\n"
	}
	text += "cases:\n"
	for _, name := range cases {
		c, err := suite.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		text += "  - {suite: " + c.Suite + ", only: [" + name + "]}\n"
	}
	file = filepath.Join(t.TempDir(), "suites.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, filepath.Join(t.TempDir(), "run")
}

// measured returns how many executions each configuration has of each case, as
// "configuration case".
func measured(t *testing.T, dir string) map[string]int {
	t.Helper()
	_, samples, err := result.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	seen, counts := map[result.Execution]bool{}, map[string]int{}
	for _, s := range samples {
		if !seen[s.Execution()] {
			seen[s.Execution()] = true
			counts[s.Configuration+" "+s.Case]++
		}
	}
	return counts
}

// assertMeasured checks that each case was run twice in each configuration.
func assertMeasured(t *testing.T, dir string, cases []string, configurations ...string) {
	t.Helper()
	counts := measured(t, dir)
	for _, c := range configurations {
		for _, k := range cases {
			if counts[c+" "+k] != 2 {
				t.Errorf("%s in %s was run %d times, want 2", k, c, counts[c+" "+k])
			}
		}
	}
}

// suitePatience is more than an image needs that is not there yet, and the run.
const suitePatience = 10 * time.Minute

// The configurations of Lubomski et al., Table 2, that stay on their machine: on the
// host and in a VM, without a container, in one, and on a volume.
func TestSuitesMatrix(t *testing.T) {
	unnest := program(t)
	names := []string{"metal.local", "metal.aufs", "metal.mnt", "vm.local", "vm.aufs", "vm.mnt"}
	var configurations []string
	for _, n := range names {
		configurations = append(configurations, "{name: "+n+"}")
	}
	cases := []string{memoryRead, memoryWrite}
	file, dir := writeExperiment(t, cases, configurations...)
	r := launch(t, unnest, "bench", file, "-o", dir)
	r.awaitExecutions(t, dir, 1)
	runs := labs(t)
	if code := r.end(t, suitePatience); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, r.out.String())
	}
	assertWorkGone(t, runs)
	assertState(t, dir, result.Complete)
	assertMeasured(t, dir, cases, names...)
	run, samples, err := result.Load(dir)
	if err != nil || run.Tools["sysbench"] == "" || run.Image == "" || len(run.Guests) != 1 {
		t.Errorf("provenance lacks something: %v, %+v", err, run)
	}
	boots := map[string]string{}
	for _, s := range samples {
		machine, _, _ := strings.Cut(s.Configuration, ".")
		if other := boots[machine]; s.Boot == "" || other != "" && other != s.Boot {
			t.Errorf("%s was measured in the boots %q and %q", machine, s.Boot, other)
		}
		boots[machine] = s.Boot
	}
	if boots["metal"] == boots["vm"] {
		t.Errorf("host and guest are the same machine: boots %v", boots)
	}
	text := mustRun(t, unnest, "report", dir)
	for _, want := range append(names, memoryRead, "total", "score") {
		if !strings.Contains(strings.ToLower(text), strings.ToLower(want)) {
			t.Errorf("the report does not mention %s:\n%s", want, text)
		}
	}
}

// labs returns the labs that are up in this test.
func labs(t *testing.T) []string {
	t.Helper()
	names, err := lab.List()
	if err != nil || len(names) == 0 {
		t.Fatalf("labs: %v, %v; want that of the run", names, err)
	}
	return names
}

// assertWorkGone checks that nothing that the runs in these labs wrote on this host
// is left, nor the control groups of their containers.
func assertWorkGone(t *testing.T, labs []string) {
	t.Helper()
	for _, name := range labs {
		for _, pattern := range []string{
			filepath.Join(guest.CacheDir(), "*"+name+"*"), "/sys/fs/cgroup/*" + name + "*", "/sys/fs/cgroup/*/*" + name + "*", "/run/netns/*" + name + "*",
		} {
			if left, err := filepath.Glob(pattern); err != nil || len(left) > 0 {
				t.Errorf("of lab %s are left %v, %v", name, left, err)
			}
		}
	}
}

// A VM in a VM beside a VM and the host, after FitzGerald 2014. The run says what the
// innermost VM runs on.
func TestSuitesLevels(t *testing.T) {
	unnest := program(t)
	file, dir := writeExperiment(t, []string{primes}, "{name: L0}", "{name: L1}", "{name: L2}")
	r := launch(t, unnest, "bench", file, "-o", dir)
	if code := r.end(t, suitePatience); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, r.out.String())
	}
	assertState(t, dir, result.Complete)
	assertMeasured(t, dir, []string{primes}, "L0", "L1", "L2")
	run, samples, err := result.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	says := regexp.MustCompile(`The guest of L2 runs on (kvm|tcg) in its own hypervisor: .`)
	if !slices.ContainsFunc(run.Notes, says.MatchString) {
		t.Errorf("the run does not say what L2 runs on: %q", run.Notes)
	}
	boots := map[string]string{}
	for _, s := range samples {
		boots[s.Boot] = s.Configuration
	}
	if len(boots) != 3 || len(run.Guests) != 2 {
		t.Errorf("three levels ran in the boots %v, and %d guests are noted", boots, len(run.Guests))
	}
}

// Stopped by Ctrl-C while a case runs, and killed later, a run goes on each time, and
// what was left is removed.
func TestSuitesInterruptKillResume(t *testing.T) {
	elsewhere := namespacesOfRuns(t)
	unnest := program(t)
	cases := []string{memoryRead, memoryWrite}
	file, dir := writeExperiment(t, cases, "{name: metal.aufs}", "{name: vm.local}")

	r := launch(t, unnest, "bench", file, "-o", dir)
	r.awaitExecutions(t, dir, 1)
	runs := labs(t)
	if err := r.Process.Signal(unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := r.end(t, 15*time.Second); code != 130 || !strings.Contains(r.out.String(), "--resume "+dir) {
		t.Errorf("interrupted: exit code %d, want 130 and how to resume:\n%s", code, r.out.String())
	}
	assertNothingLeft(t, elsewhere)
	assertWorkGone(t, runs)
	assertState(t, dir, result.Interrupted)

	r = launch(t, unnest, "bench", "--resume", dir)
	r.awaitExecutions(t, dir, executions(dir)+1)
	runs = labs(t)
	if err := r.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	r.end(t, 5*time.Second)

	r = launch(t, unnest, "bench", "--resume", dir)
	if code := r.end(t, suitePatience); code != 0 {
		t.Fatalf("resumed: exit code %d:\n%s", code, r.out.String())
	}
	if !strings.Contains(r.out.String(), "removed what was left of "+runs[0]) {
		t.Errorf("the resumed run does not say that it removed the killed one:\n%s", r.out.String())
	}
	assertWorkGone(t, runs)
	assertState(t, dir, result.Complete)
	assertMeasured(t, dir, cases, "metal.aufs", "vm.local")
}

// Ctrl-C while machines and containers are brought up leaves nothing either.
func TestSuitesInterruptBringUp(t *testing.T) {
	elsewhere := namespacesOfRuns(t)
	unnest := program(t)
	file, dir := writeExperiment(t, []string{memoryRead}, "{name: metal.mnt}", "{name: vm.local}")
	r := launch(t, unnest, "bench", file, "-o", dir)
	for end := time.Now().Add(bringUp); !containerStarts(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			_ = r.Process.Signal(unix.SIGINT)
			t.Fatalf("no container after %v, then %v:\n%s", bringUp, <-r.ended, r.out.String())
		}
	}
	runs := labs(t)
	if err := r.Process.Signal(unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := r.end(t, 15*time.Second); code != 130 {
		t.Errorf("exit code %d, want 130:\n%s", code, r.out.String())
	}
	assertNothingLeft(t, elsewhere)
	assertWorkGone(t, runs)
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a run that measured nothing has left its directory: %v", err)
	}
}

// A guest that dies while a case runs costs the run that execution, which is tried
// again in a new guest, and the run says so.
func TestSuitesGuestDies(t *testing.T) {
	unnest := program(t)
	file, dir := writeExperiment(t, []string{primes}, "{name: metal.local}", "{name: vm.local}", "{name: vm.mnt}")
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, bytes.Replace(text, []byte("retries: 0"), []byte("retries: 1"), 1), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := launch(t, unnest, "bench", file, "-o", dir)
	r.awaitExecutions(t, dir, 1)
	killGuest(t)
	for end := time.Now().Add(20 * time.Second); !strings.Contains(r.out.String(), "bring up anew"); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("after 20 s the run has not noticed:\n%s", r.out.String())
			break
		}
	}
	if code := r.end(t, suitePatience); code != 0 || !strings.Contains(r.out.String(), "guest died: node1") {
		t.Errorf("exit code %d, want 0 and why it took longer:\n%s", code, r.out.String())
	}
	assertState(t, dir, result.Complete)
	assertMeasured(t, dir, []string{primes}, "metal.local", "vm.local", "vm.mnt")
	run, _, err := result.Load(dir)
	if err != nil || !slices.ContainsFunc(run.Notes, regexp.MustCompile("^The machine of vm.(local|mnt) was restarted in case "+primes+": .*guest died: node1").MatchString) {
		t.Errorf("the run does not say that a guest died: %v, %q", err, run.Notes)
	}
}

// containerStarts reports whether a run has control groups for containers on this
// host, in the one hierarchy of version 2 or the many of version 1.
func containerStarts() bool {
	one, _ := filepath.Glob("/sys/fs/cgroup/unnest-run-*") // the patterns are right
	many, _ := filepath.Glob("/sys/fs/cgroup/*/unnest-run-*")
	return len(one)+len(many) > 0
}

// home makes a home directory with a key to log in with, and returns it with the
// public half.
func home(t *testing.T) (dir string, authorized ssh.PublicKey) {
	t.Helper()
	dir = t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, ".ssh"), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir, writeKeyPair(t, filepath.Join(dir, ".ssh", "id_ed25519"))
}

// writeKeyPair writes a new private key to path and returns its public half.
func writeKeyPair(t *testing.T, path string) ssh.PublicKey {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "test")
	if err == nil {
		err = os.WriteFile(path, pem.EncodeToMemory(block), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return signer.PublicKey()
}

// know makes the only known hosts of a home these lines.
func know(t *testing.T, home string, lines ...string) {
	t.Helper()
	path := filepath.Join(home, ".ssh", "known_hosts")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// inNamespace returns a command line that runs args in the network namespace at path,
// and with a home directory.
func inNamespace(path, home string, args ...string) []string {
	return append([]string{"env", "HOME=" + home, "UNNEST_CACHE=" + guest.CacheDir(), "nsenter", "--net=" + path}, args...)
}

// sshAddress is where the test's sshd listens, in its network namespace.
const sshAddress = "127.0.0.1:2222"

// startSSHD runs Debian's sshd, with keys of two types, in a network namespace, whose
// path it returns with the host keys. Those who log in find every program of this
// machine but those hidden.
func startSSHD(t *testing.T, authorized ssh.PublicKey, hidden ...string) (namespace string, hostKeys []ssh.PublicKey) {
	t.Helper()
	sshd, err := exec.LookPath("/usr/sbin/sshd")
	if err != nil {
		t.Fatalf("%v: install openssh-server", err)
	}
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	config := fmt.Sprintf("ListenAddress %s\nPidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n"+
		"AuthorizedKeysFile %s\nSetEnv PATH=%s\n", sshAddress, file("authorized_keys"), programsWithout(t, hidden...))
	for _, kind := range []string{"ecdsa", "ed25519"} { // sshd's own choice is not the key that is known
		mustRun(t, "ssh-keygen", "-q", "-t", kind, "-N", "", "-f", file(kind))
		config += "HostKey " + file(kind) + "\n"
		line, err := os.ReadFile(file(kind) + ".pub")
		if err != nil {
			t.Fatal(err)
		}
		key, _, _, _, err := ssh.ParseAuthorizedKey(line)
		if err != nil {
			t.Fatal(err)
		}
		hostKeys = append(hostKeys, key)
	}
	if err := errors.Join(
		os.WriteFile(file("config"), []byte(config), 0o600),
		os.WriteFile(file("authorized_keys"), ssh.MarshalAuthorizedKey(authorized), 0o600),
		os.MkdirAll("/run/sshd", 0o755), // sshd wants it, empty
	); err != nil {
		t.Fatal(err)
	}
	var words bytes.Buffer
	server := exec.Command("unshare", "--net", "sh", "-c", `ip link set lo up && exec "$@"`, "sh", sshd, "-D", "-e", "-f", file("config"))
	server.Stderr = &words
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
		if t.Failed() {
			t.Logf("sshd says:\n%s", words.String())
		}
	})
	namespace = fmt.Sprintf("/proc/%d/ns/net", server.Process.Pid)
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		err := lab.Do(namespace, func() error {
			conn, err := net.Dial("tcp", sshAddress)
			if err == nil {
				err = conn.Close()
			}
			return err
		})
		if err == nil {
			return namespace, hostKeys
		}
		if time.Now().After(end) {
			t.Fatalf("sshd does not listen: %v", err)
		}
	}
}

// programsWithout makes a directory with every program in PATH but those hidden.
func programsWithout(t *testing.T, hidden ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, from := range filepath.SplitList("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin") {
		entries, err := os.ReadDir(from)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		for _, e := range entries {
			err := os.Symlink(filepath.Join(from, e.Name()), filepath.Join(dir, e.Name()))
			if err != nil && !errors.Is(err, fs.ErrExist) {
				t.Fatal(err)
			}
		}
	}
	for _, program := range hidden {
		if err := os.Remove(filepath.Join(dir, program)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	return dir
}

// A host behind SSH is measured, and nothing stays on it. A tool that it lacks is a
// hole with a reason, which is no failure; an engine that it lacks ends the run.
func TestSuitesSSH(t *testing.T) {
	unnest := program(t)
	home, authorized := home(t)
	namespace, keys := startSSHD(t, authorized, "sysbench", "nerdctl", "docker", "podman")
	know(t, home, knownhosts.Line([]string{knownhosts.Normalize(sshAddress)}, keys[1]))
	before := workOnHost(t)
	// Packages cannot be fetched in the server's namespace.
	b := guest.Builder{Cache: guest.CacheDir()}
	if _, err := b.Root(t.Context(), guest.SuiteRecipe([]string{"sysbench"})); err != nil {
		t.Fatal(err)
	}
	const remote = "{name: remote, stack: ssh, host: 'ssh://root@" + sshAddress + "'}"

	file, dir := writeExperiment(t, []string{gzipFile}, remote)
	mustRun(t, inNamespace(namespace, home, unnest, "bench", file, "-o", dir)...)
	assertState(t, dir, result.Complete)
	assertMeasured(t, dir, []string{gzipFile}, "remote")
	if run, _, err := result.Load(dir); err != nil || len(run.Guests) != 1 || run.Guests[0].Name != "ssh" {
		t.Errorf("the host is not noted: %v, %+v", err, run.Guests)
	}

	file, dir = writeExperiment(t, []string{memoryRead}, "{name: metal.local}", remote)
	mustRun(t, inNamespace(namespace, home, unnest, "bench", file, "-o", dir)...)
	assertState(t, dir, result.Complete)
	assertMeasured(t, dir, []string{memoryRead}, "metal.local")
	run, _, err := result.Load(dir)
	if err != nil || len(run.Failures) != 2 {
		t.Fatalf("%d failures, %v; want 2 of the hole", len(run.Failures), err)
	}
	for _, f := range run.Failures {
		want := "there is no sysbench on ssh://root@" + sshAddress + ": the Debian package is sysbench"
		if f.Configuration != "remote" || !strings.HasSuffix(f.Error, want) || strings.Contains(f.Error, "\n") {
			t.Errorf("the hole is %+v, want one line with %q", f, want)
		}
	}

	file, dir = writeExperiment(t, []string{memoryRead}, strings.Replace(remote, "stack: ssh", "stack: ssh/docker", 1))
	r := launch(t, inNamespace(namespace, home, unnest, "bench", file, "-o", dir)...)
	lacking := "unnest: configuration remote: start the container engine: ssh://root@" + sshAddress + " has no container engine: install docker or podman there, or use stack ssh\n"
	if code := r.end(t, time.Minute); code != 1 || !strings.HasSuffix(r.out.String(), "\n"+lacking) {
		t.Errorf("exit code %d, want 1 and the last line %q:\n%s", code, lacking, r.out.String())
	}
	if left := workOnHost(t); !slices.Equal(left, before) {
		t.Errorf("on the host are left %v, before there were %v", left, before)
	}
}

// workOnHost lists what unnest works in on a host behind SSH.
func workOnHost(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("/var/tmp/unnest-*")
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// What keeps from logging in is said in one line, with the mend.
func TestSuitesSSHRefused(t *testing.T) {
	unnest := program(t)
	home, authorized := home(t)
	namespace, keys := startSSHD(t, authorized, "sysbench")
	known := knownhosts.Line([]string{knownhosts.Normalize(sshAddress)}, keys[1])
	stranger := writeKeyPair(t, filepath.Join(home, "other"))

	for _, test := range []struct {
		name          string
		known         string
		host, options string
		want          string
	}{
		{"unknown host", "", sshAddress, "", "its host key is not in " + home + "/.ssh/known_hosts: log in once by ssh"},
		{"another host", knownhosts.Line([]string{knownhosts.Normalize(sshAddress)}, stranger), sshAddress, "",
			"its host key differs from the one in " + home + "/.ssh/known_hosts, line 1"},
		{"wrong key", known, sshAddress, ", identity: " + home + "/other", "it refuses the key " + home + "/other: add its public half to authorized_keys there"},
		{"no key", known, sshAddress, ", identity: " + home + "/none", "read login key: open " + home + "/none: no such file"},
		{"host down", known, "127.0.0.1:2223", "", "reach ssh://root@127.0.0.1:2223: dial tcp 127.0.0.1:2223: connect: connection refused"},
	} {
		t.Run(test.name, func(t *testing.T) {
			know(t, home, test.known)
			file, dir := writeExperiment(t, []string{gzipFile}, "{name: remote, stack: ssh, host: 'ssh://root@"+test.host+"'"+test.options+"}")
			r := launch(t, inNamespace(namespace, home, unnest, "bench", file, "-o", dir)...)
			if code := r.end(t, time.Minute); code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			lines := strings.Split(strings.TrimSpace(r.out.String()), "\n")
			last := lines[len(lines)-1]
			if !strings.HasPrefix(last, "unnest: configuration remote: ") || !strings.Contains(last, test.want) || strings.Count(last, "configuration remote") != 1 {
				t.Errorf("the last line is %q, want %q in:\n%s", last, test.want, r.out.String())
			}
			if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a run that measured nothing has left its directory: %v", err)
			}
		})
	}
}

// A guest of ours is a host as any other for who has its key: dropbear serves it.
func TestSuitesSSHGuest(t *testing.T) {
	unnest := program(t)
	mustRun(t, unnest, "vm", "up", "--pool", "0", "--vcpus", "2", "node1")
	defer func() { mustRun(t, unnest, "vm", "down", "--all") }()
	l, err := lab.View(labs(t)[0])
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(l.GuestDir("node1"), "node.json"))
	if err != nil {
		t.Fatal(err)
	}
	var note struct {
		HostKey string `json:"host_key"`
	}
	if err := json.Unmarshal(content, &note); err != nil {
		t.Fatal(err)
	}
	hostKey, _, _, _, err := ssh.ParseAuthorizedKey([]byte(note.HostKey))
	if err != nil {
		t.Fatal(err)
	}
	const address = "10.200.0.2"
	home, _ := home(t)
	know(t, home, knownhosts.Line([]string{address}, hostKey))

	file, dir := writeExperiment(t, []string{gzipFile, memoryRead}, "{name: remote, stack: ssh, host: 'ssh://root@"+address+"', identity: "+filepath.Join(l.Dir, "ssh.key")+"}")
	r := launch(t, inNamespace(l.HostNS(), home, unnest, "bench", file, "-o", dir)...)
	if code := r.end(t, bringUp); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, r.out.String())
	}
	if got := measured(t, dir); got["remote "+gzipFile] != 2 || len(got) != 1 {
		t.Errorf("measured were %v, want gzip-file alone: the guest has no sysbench", got)
	}
	assertLeftInGuest(t, unnest, "")

	// Its container engine is a host's as any other. A run that is killed leaves
	// containers, which the next one removes.
	mustRun(t, unnest, "vm", "ssh", "node1", "/etc/unnest/engine")
	begin := time.Now()
	options := "stack: ssh/containerd, host: 'ssh://root@" + address + "', identity: " + filepath.Join(l.Dir, "ssh.key") + "}"
	file, dir = writeExperiment(t, []string{memoryRead}, "{name: aufs, storage: overlay, "+options, "{name: mnt, storage: volume, "+options)
	r = launch(t, inNamespace(l.HostNS(), home, unnest, "bench", file, "-o", dir)...)
	r.awaitExecutions(t, dir, 1)
	t.Logf("loaded and measured once after %v", time.Since(begin))
	if err := r.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	r.end(t, 5*time.Second)
	assertLeftInGuest(t, unnest, "unnest-run-")
	r = launch(t, inNamespace(l.HostNS(), home, unnest, "bench", "--resume", dir)...)
	if code := r.end(t, bringUp); code != 0 || strings.Contains(r.out.String(), "load the image") {
		t.Errorf("exit code %d, want 0, and no image loaded again:\n%s", code, r.out.String())
	}
	assertLeftInGuest(t, unnest, "")
	t.Logf("ended after %v", time.Since(begin))
	assertMeasured(t, dir, []string{memoryRead}, "aufs", "mnt")
	run, _, err := result.Load(dir)
	says := regexp.MustCompile("^nerdctl version .* runs the containers on ssh://root@" + address + ".*`nerdctl rmi localhost/unnest/suite:[0-9a-f]+`")
	if err != nil || !slices.ContainsFunc(run.Notes, says.MatchString) || run.Tools["sysbench"] == "" {
		t.Errorf("the run does not say what its containers are: %v, %q, tools %v", err, run.Notes, run.Tools)
	}
}

// assertLeftInGuest checks that directories and containers of runs, whose names begin
// with this, are in the guest; or none when it is empty.
func assertLeftInGuest(t *testing.T, unnest, begin string) {
	t.Helper()
	const script = "ls -A /var/tmp; [ ! -S /run/containerd/containerd.sock ] || nerdctl ps --all --format '{{.Names}}'"
	left := strings.Fields(mustRun(t, unnest, "vm", "ssh", "node1", "sh", "-c", script))
	if begin == "" && len(left) > 0 || begin != "" && len(left) < 2 {
		t.Errorf("in the guest is left %q, want %q", left, begin)
	}
	for _, name := range left {
		if !strings.HasPrefix(name, begin) {
			t.Errorf("in the guest is left %s, want %q", name, begin)
		}
	}
}
