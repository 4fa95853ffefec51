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

// The cases of these tests need one Debian package, so that the experiments share an image.
// Every Debian has gzip.
const (
	memoryRead  = "sysbench-memory-read"
	memoryWrite = "sysbench-memory-write"
	primes      = "sysbench-cpu"
	gzipFile    = "gzip-file"
)

// writeExperiment writes an experiment file with the named cases and with configurations in
// YAML. It returns the path of the file and a run directory.
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

// measured returns the number of executions by "configuration case".
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
				t.Errorf("%s in %s ran %d times, want 2", k, c, counts[c+" "+k])
			}
		}
	}
}

// suiteLimit bounds the time for building an image and for a run.
const suiteLimit = 10 * time.Minute

// The local configurations of Lubomski et al., Table 2: on the host and in a VM, each without a
// container, in a container, and on a volume.
func TestSuitesMatrix(t *testing.T) {
	unnest := unnestBinary(t)
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
	if code := r.end(t, suiteLimit); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, r.out.String())
	}
	assertWorkGone(t, runs)
	assertState(t, dir, result.Complete)
	assertMeasured(t, dir, cases, names...)
	run, samples, err := result.Load(dir)
	if err != nil || run.Tools["sysbench"] == "" || run.Image == "" || len(run.Guests) != 1 {
		t.Errorf("provenance is incomplete: %v, %+v", err, run)
	}
	boots := map[string]string{}
	for _, s := range samples {
		machine, _, _ := strings.Cut(s.Configuration, ".")
		if other := boots[machine]; s.Boot == "" || other != "" && other != s.Boot {
			t.Errorf("%s was measured in the boots %q and %q, want one", machine, s.Boot, other)
		}
		boots[machine] = s.Boot
	}
	if boots["metal"] == boots["vm"] {
		t.Errorf("host and guest have the same boot ID: %v", boots)
	}
	text := mustRun(t, unnest, "report", dir)
	for _, want := range append(names, memoryRead, "total", "score") {
		if !strings.Contains(strings.ToLower(text), strings.ToLower(want)) {
			t.Errorf("the report does not contain %s:\n%s", want, text)
		}
	}
}

// labs returns the labs of this test.
func labs(t *testing.T) []string {
	t.Helper()
	names, err := lab.List()
	if err != nil || len(names) == 0 {
		t.Fatalf("labs: %v, %v; want the lab of the run", names, err)
	}
	return names
}

// assertWorkGone checks that the runs in these labs have left no files on this host and no
// control groups of containers.
func assertWorkGone(t *testing.T, labs []string) {
	t.Helper()
	for _, name := range labs {
		for _, pattern := range []string{
			filepath.Join(guest.CacheDir(), "*"+name+"*"), "/sys/fs/cgroup/*" + name + "*", "/sys/fs/cgroup/*/*" + name + "*", "/run/netns/*" + name + "*",
		} {
			if left, err := filepath.Glob(pattern); err != nil || len(left) > 0 {
				t.Errorf("left of lab %s: %v, %v", name, left, err)
			}
		}
	}
}

// The host, a VM, and a VM in a VM, as in FitzGerald 2014. The run records the accelerator of the
// inner VM.
func TestSuitesLevels(t *testing.T) {
	unnest := unnestBinary(t)
	file, dir := writeExperiment(t, []string{primes}, "{name: L0}", "{name: L1}", "{name: L2}")
	r := launch(t, unnest, "bench", file, "-o", dir)
	if code := r.end(t, suiteLimit); code != 0 {
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
		t.Errorf("the notes do not name the accelerator of L2: %q", run.Notes)
	}
	boots := map[string]string{}
	for _, s := range samples {
		boots[s.Boot] = s.Configuration
	}
	if len(boots) != 3 || len(run.Guests) != 2 {
		t.Errorf("got the boots %v and %d guests, want 3 and 2", boots, len(run.Guests))
	}
}

// A run that is interrupted by Ctrl-C, and later killed, can be resumed each time. Leftovers of
// the killed run are removed.
func TestSuitesInterruptKillResume(t *testing.T) {
	elsewhere := namespacesOfRuns(t)
	unnest := unnestBinary(t)
	cases := []string{memoryRead, memoryWrite}
	file, dir := writeExperiment(t, cases, "{name: metal.aufs}", "{name: vm.local}")

	r := launch(t, unnest, "bench", file, "-o", dir)
	r.awaitExecutions(t, dir, 1)
	runs := labs(t)
	r.interrupt(t, 15*time.Second)
	if !strings.Contains(r.out.String(), "--resume "+dir) {
		t.Errorf("the interrupted run does not say how to resume:\n%s", r.out.String())
	}
	assertNothingLeft(t, elsewhere)
	assertWorkGone(t, runs)
	assertState(t, dir, result.Interrupted)

	r = launch(t, unnest, "bench", "--resume", dir)
	r.awaitExecutions(t, dir, executions(dir)+1)
	runs = labs(t)
	r.kill(t)

	r = launch(t, unnest, "bench", "--resume", dir)
	if code := r.end(t, suiteLimit); code != 0 {
		t.Fatalf("resumed: exit code %d:\n%s", code, r.out.String())
	}
	if !strings.Contains(r.out.String(), "removed the remains of "+runs[0]) {
		t.Errorf("the resumed run does not say that it removed the killed one:\n%s", r.out.String())
	}
	assertWorkGone(t, runs)
	assertState(t, dir, result.Complete)
	assertMeasured(t, dir, cases, "metal.aufs", "vm.local")
}

// Ctrl-C during bring-up leaves nothing either.
func TestSuitesInterruptBringUp(t *testing.T) {
	elsewhere := namespacesOfRuns(t)
	unnest := unnestBinary(t)
	file, dir := writeExperiment(t, []string{memoryRead}, "{name: metal.mnt}", "{name: vm.local}")
	r := launch(t, unnest, "bench", file, "-o", dir)
	for end := time.Now().Add(bringUp); !containerStarts(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			_ = r.Process.Signal(unix.SIGINT)
			t.Fatalf("no container after %v; interrupted: %v:\n%s", bringUp, <-r.ended, r.out.String())
		}
	}
	runs := labs(t)
	r.interrupt(t, 15*time.Second)
	assertNothingLeft(t, elsewhere)
	assertWorkGone(t, runs)
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a run without samples has left its directory: %v", err)
	}
}

// If a guest dies while a case runs, the run repeats the execution in a new guest and records a
// note.
func TestSuitesGuestDies(t *testing.T) {
	unnest := unnestBinary(t)
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
	for end := time.Now().Add(20 * time.Second); !strings.Contains(r.out.String(), "restart the machine of"); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("the run did not notice within 20 s:\n%s", r.out.String())
			break
		}
	}
	if code := r.end(t, suiteLimit); code != 0 || !strings.Contains(r.out.String(), "guest died: node1") {
		t.Errorf("exit code %d, want 0 and a message that the guest died:\n%s", code, r.out.String())
	}
	assertState(t, dir, result.Complete)
	assertMeasured(t, dir, []string{primes}, "metal.local", "vm.local", "vm.mnt")
	run, _, err := result.Load(dir)
	if err != nil || !slices.ContainsFunc(run.Notes, regexp.MustCompile("^The machine of vm.(local|mnt) was restarted in case "+primes+": .*guest died: node1").MatchString) {
		t.Errorf("no note says that a guest died: %v, %q", err, run.Notes)
	}
}

// containerStarts reports whether a run has control groups of containers on this host, in the
// hierarchy of version 2 or in those of version 1.
func containerStarts() bool {
	one, _ := filepath.Glob("/sys/fs/cgroup/unnest-run-*") // the patterns are right
	many, _ := filepath.Glob("/sys/fs/cgroup/*/unnest-run-*")
	return len(one)+len(many) > 0
}

// home creates a home directory with a login key, and returns it with the public key.
func home(t *testing.T) (dir string, authorized ssh.PublicKey) {
	t.Helper()
	dir = t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, ".ssh"), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir, writeKeyPair(t, filepath.Join(dir, ".ssh", "id_ed25519"))
}

// writeKeyPair writes a new private key to path and returns its public key.
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

// writeKnownHosts replaces the known hosts of a home directory.
func writeKnownHosts(t *testing.T, home string, lines ...string) {
	t.Helper()
	path := filepath.Join(home, ".ssh", "known_hosts")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// inNamespace returns a command that runs args in a network namespace and with a home directory.
func inNamespace(path, home string, args ...string) []string {
	return append([]string{"env", "HOME=" + home, "UNNEST_CACHE=" + guest.CacheDir(), "nsenter", "--net=" + path}, args...)
}

// sshAddress is the address of the test's sshd, in its network namespace.
const sshAddress = "127.0.0.1:2222"

// startSSHD runs Debian's sshd in a network namespace and returns the path of the namespace and
// the host keys, of two types. The PATH of a login has all tools of this machine except the
// hidden ones.
func startSSHD(t *testing.T, authorized ssh.PublicKey, hidden ...string) (namespace string, hostKeys []ssh.PublicKey) {
	t.Helper()
	sshd, err := exec.LookPath("/usr/sbin/sshd")
	if err != nil {
		t.Fatalf("%v: install openssh-server", err)
	}
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	config := fmt.Sprintf("ListenAddress %s\nPidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n"+
		"AuthorizedKeysFile %s\nSetEnv PATH=%s\n", sshAddress, file("authorized_keys"), toolsWithout(t, hidden...))
	for _, kind := range []string{"ecdsa", "ed25519"} { // sshd prefers a key that is not the known one
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
		os.MkdirAll("/run/sshd", 0o755), // sshd needs the directory, empty
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
			t.Logf("output of sshd:\n%s", words.String())
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

// toolsWithout creates a directory with links to all tools in PATH except the hidden ones.
func toolsWithout(t *testing.T, hidden ...string) string {
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
	for _, tool := range hidden {
		if err := os.Remove(filepath.Join(dir, tool)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	return dir
}

// A host behind SSH is measured, and nothing is left on it. If it lacks a tool, the case is
// omitted with a reason and the run succeeds. If it lacks a container engine, the run fails.
func TestSuitesSSH(t *testing.T) {
	unnest := unnestBinary(t)
	home, authorized := home(t)
	namespace, keys := startSSHD(t, authorized, "sysbench", "nerdctl", "docker", "podman")
	writeKnownHosts(t, home, knownhosts.Line([]string{knownhosts.Normalize(sshAddress)}, keys[1]))
	before := workOnHost(t)
	// The namespace of the server cannot download packages.
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
		t.Errorf("hosts of the run: %v, %+v; want ssh", err, run.Guests)
	}

	file, dir = writeExperiment(t, []string{memoryRead}, "{name: metal.local}", remote)
	mustRun(t, inNamespace(namespace, home, unnest, "bench", file, "-o", dir)...)
	assertState(t, dir, result.Complete)
	assertMeasured(t, dir, []string{memoryRead}, "metal.local")
	run, _, err := result.Load(dir)
	if err != nil || len(run.Failures) != 2 {
		t.Fatalf("%d failures, %v; want 2 of the omitted case", len(run.Failures), err)
	}
	for _, f := range run.Failures {
		want := "there is no sysbench on ssh://root@" + sshAddress + ": the Debian package is sysbench"
		if f.Configuration != "remote" || !strings.HasSuffix(f.Error, want) || strings.Contains(f.Error, "\n") {
			t.Errorf("failure %+v, want one line that ends with %q", f, want)
		}
	}

	file, dir = writeExperiment(t, []string{memoryRead}, strings.Replace(remote, "stack: ssh", "stack: ssh/docker", 1))
	r := launch(t, inNamespace(namespace, home, unnest, "bench", file, "-o", dir)...)
	lacking := "unnest: configuration remote: start the container engine: ssh://root@" + sshAddress + " has no container engine: install docker or podman there, or use stack ssh\n"
	if code := r.end(t, time.Minute); code != 1 || !strings.HasSuffix(r.out.String(), "\n"+lacking) {
		t.Errorf("exit code %d, want 1 and the last line %q:\n%s", code, lacking, r.out.String())
	}
	if left := workOnHost(t); !slices.Equal(left, before) {
		t.Errorf("directories on the host: %v, before: %v", left, before)
	}
}

// workOnHost lists the working directories of unnest on a host behind SSH.
func workOnHost(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("/var/tmp/unnest-*")
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// A failed login ends the run with one line that says how to fix it.
func TestSuitesSSHRefused(t *testing.T) {
	unnest := unnestBinary(t)
	home, authorized := home(t)
	namespace, keys := startSSHD(t, authorized, "sysbench")
	known := knownhosts.Line([]string{knownhosts.Normalize(sshAddress)}, keys[1])
	otherKey := writeKeyPair(t, filepath.Join(home, "other"))

	for _, test := range []struct {
		name          string
		known         string
		host, options string
		want          string
	}{
		{"unknown host", "", sshAddress, "", "its host key is not in " + home + "/.ssh/known_hosts: log in once by ssh"},
		{"another host", knownhosts.Line([]string{knownhosts.Normalize(sshAddress)}, otherKey), sshAddress, "",
			"its host key differs from the one in " + home + "/.ssh/known_hosts, line 1"},
		{"wrong key", known, sshAddress, ", identity: " + home + "/other", "it refuses the key " + home + "/other: add its public half to authorized_keys there"},
		{"no key", known, sshAddress, ", identity: " + home + "/none", "read login key: open " + home + "/none: no such file"},
		{"host down", known, "127.0.0.1:2223", "", "reach ssh://root@127.0.0.1:2223: dial tcp 127.0.0.1:2223: connect: connection refused"},
	} {
		t.Run(test.name, func(t *testing.T) {
			writeKnownHosts(t, home, test.known)
			file, dir := writeExperiment(t, []string{gzipFile}, "{name: remote, stack: ssh, host: 'ssh://root@"+test.host+"'"+test.options+"}")
			r := launch(t, inNamespace(namespace, home, unnest, "bench", file, "-o", dir)...)
			if code := r.end(t, time.Minute); code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			lines := strings.Split(strings.TrimSpace(r.out.String()), "\n")
			last := lines[len(lines)-1]
			if !strings.HasPrefix(last, "unnest: configuration remote: ") || !strings.Contains(last, test.want) || strings.Count(last, "configuration remote") != 1 {
				t.Errorf("the last line is %q, want it to contain %q:\n%s", last, test.want, r.out.String())
			}
			if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a run without samples has left its directory: %v", err)
			}
		})
	}
}

// A guest of Unnest can be measured as a host behind SSH, which dropbear serves.
func TestSuitesSSHGuest(t *testing.T) {
	unnest := unnestBinary(t)
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
	var record struct {
		HostKey string `json:"host_key"`
	}
	if err := json.Unmarshal(content, &record); err != nil {
		t.Fatal(err)
	}
	hostKey, _, _, _, err := ssh.ParseAuthorizedKey([]byte(record.HostKey))
	if err != nil {
		t.Fatal(err)
	}
	const address = "10.200.0.2"
	home, _ := home(t)
	writeKnownHosts(t, home, knownhosts.Line([]string{address}, hostKey))

	file, dir := writeExperiment(t, []string{gzipFile, memoryRead}, "{name: remote, stack: ssh, host: 'ssh://root@"+address+"', identity: "+filepath.Join(l.Dir, "ssh.key")+"}")
	r := launch(t, inNamespace(l.HostNS(), home, unnest, "bench", file, "-o", dir)...)
	if code := r.end(t, bringUp); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, r.out.String())
	}
	if got := measured(t, dir); got["remote "+gzipFile] != 2 || len(got) != 1 {
		t.Errorf("measured %v, want only gzip-file, because the guest has no sysbench", got)
	}
	assertLeftInGuest(t, unnest, "")

	// Its container engine can be used as well. A killed run leaves containers, which the next
	// run removes.
	mustRun(t, unnest, "vm", "ssh", "node1", "/etc/unnest/engine")
	begin := time.Now()
	options := "stack: ssh/containerd, host: 'ssh://root@" + address + "', identity: " + filepath.Join(l.Dir, "ssh.key") + "}"
	file, dir = writeExperiment(t, []string{memoryRead}, "{name: aufs, storage: overlay, "+options, "{name: mnt, storage: volume, "+options)
	r = launch(t, inNamespace(l.HostNS(), home, unnest, "bench", file, "-o", dir)...)
	r.awaitExecutions(t, dir, 1)
	t.Logf("image loaded and first execution measured after %v", time.Since(begin))
	r.kill(t)
	assertLeftInGuest(t, unnest, "unnest-run-")
	r = launch(t, inNamespace(l.HostNS(), home, unnest, "bench", "--resume", dir)...)
	if code := r.end(t, bringUp); code != 0 || strings.Contains(r.out.String(), "load the image") {
		t.Errorf("exit code %d, want 0, and the image not loaded again:\n%s", code, r.out.String())
	}
	assertLeftInGuest(t, unnest, "")
	t.Logf("ended after %v", time.Since(begin))
	assertMeasured(t, dir, []string{memoryRead}, "aufs", "mnt")
	run, _, err := result.Load(dir)
	says := regexp.MustCompile("^nerdctl version .* runs the containers on ssh://root@" + address + ".*`nerdctl rmi localhost/unnest/suite:[0-9a-f]+`")
	if err != nil || !slices.ContainsFunc(run.Notes, says.MatchString) || run.Tools["sysbench"] == "" {
		t.Errorf("the notes do not name the container engine and the image: %v, %q, tools %v", err, run.Notes, run.Tools)
	}
}

// assertLeftInGuest checks that the guest has directories and containers of runs, and only those
// with the prefix begin; or none if begin is empty.
func assertLeftInGuest(t *testing.T, unnest, begin string) {
	t.Helper()
	const script = "ls -A /var/tmp; [ ! -S /run/containerd/containerd.sock ] || nerdctl ps --all --format '{{.Names}}'"
	left := strings.Fields(mustRun(t, unnest, "vm", "ssh", "node1", "sh", "-c", script))
	if begin == "" && len(left) > 0 || begin != "" && len(left) < 2 {
		t.Errorf("left in the guest: %q, want names that begin with %q", left, begin)
	}
	for _, name := range left {
		if !strings.HasPrefix(name, begin) {
			t.Errorf("left in the guest: %s, want names that begin with %q", name, begin)
		}
	}
}
