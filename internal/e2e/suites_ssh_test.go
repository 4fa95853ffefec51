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

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/rundir"
	"unnest.io/unnest/internal/testbed/image"
	"unnest.io/unnest/internal/testbed/lab"
)

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
	return append([]string{"env", "HOME=" + home, "UNNEST_CACHE=" + image.CacheDir(), "nsenter", "--net=" + path}, args...)
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
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
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
	b := image.Builder{Cache: image.CacheDir()}
	if _, err := b.Root(t.Context(), image.SuiteRecipe([]string{"sysbench"})); err != nil {
		t.Fatal(err)
	}
	const remote = "{name: remote, stack: ssh, host: 'ssh://root@" + sshAddress + "'}"

	file, dir := writeExperiment(t, []string{gzipFile}, remote)
	mustRun(t, inNamespace(namespace, home, unnest, "bench", "--noisy", file, "-o", dir)...)
	assertState(t, dir, result.Complete)
	assertMeasured(t, dir, []string{gzipFile}, "remote")
	if run, _, err := rundir.Load(dir); err != nil || len(run.Guests) != 1 || run.Guests[0].Name != "ssh" {
		t.Errorf("hosts of the run: %v, %+v; want ssh", err, run.Guests)
	}

	file, dir = writeExperiment(t, []string{memoryRead}, "{name: metal.local}", remote)
	mustRun(t, inNamespace(namespace, home, unnest, "bench", "--noisy", file, "-o", dir)...)
	assertState(t, dir, result.Complete)
	assertMeasured(t, dir, []string{memoryRead}, "metal.local")
	run, _, err := rundir.Load(dir)
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
	r := launch(t, inNamespace(namespace, home, unnest, "bench", "--noisy", file, "-o", dir)...)
	lacking := "unnest: configuration remote: start the container engine: ssh://root@" + sshAddress + " has no container engine: install docker or podman there, or use stack ssh\n"
	if code := r.end(t, endLimit); code != 1 || !strings.HasSuffix(r.out.String(), "\n"+lacking) {
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
			r := launch(t, inNamespace(namespace, home, unnest, "bench", "--noisy", file, "-o", dir)...)
			if code := r.end(t, endLimit); code != 1 {
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
	bench, options := guestOverSSH(t, unnest)

	file, dir := writeExperiment(t, []string{gzipFile, memoryRead}, "{name: remote, stack: ssh, "+options+"}")
	r := launch(t, append(bench, file, "-o", dir)...)
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
	container := "stack: ssh/containerd, " + options + "}"
	file, dir = writeExperiment(t, []string{memoryRead}, "{name: aufs, storage: overlay, "+container, "{name: mnt, storage: volume, "+container)
	r = launch(t, append(bench, file, "-o", dir)...)
	r.awaitExecutions(t, dir, 1)
	t.Logf("image loaded and first execution measured after %v", time.Since(begin))
	r.kill(t)
	assertLeftInGuest(t, unnest, "unnest-run-")
	r = launch(t, append(bench, "--resume", dir)...)
	if code := r.end(t, bringUp); code != 0 || strings.Contains(r.out.String(), "load the image") {
		t.Errorf("exit code %d, want 0, and the image not loaded again:\n%s", code, r.out.String())
	}
	assertLeftInGuest(t, unnest, "")
	t.Logf("ended after %v", time.Since(begin))
	assertMeasured(t, dir, []string{memoryRead}, "aufs", "mnt")
	run, _, err := rundir.Load(dir)
	says := regexp.MustCompile("^nerdctl version .* runs the containers on ssh://root@" + guestAddress + ".*`nerdctl rmi localhost/unnest/suite:[0-9a-f]+`")
	if err != nil || !slices.ContainsFunc(run.Notes, says.MatchString) || run.Tools["sysbench"] == "" {
		t.Errorf("the notes do not name the container engine and the image: %v, %q, tools %v", err, run.Notes, run.Tools)
	}
	testServersOverSSH(t, unnest, bench, options)
}

// guestAddress is that of the first guest of `unnest vm up`.
const guestAddress = "10.200.0.2"

// guestOverSSH starts a guest, with further options of `unnest vm up`, and takes it down when the test ends. It returns
// the command line of `unnest bench` in the network that reaches the guest, and the keys host and identity of
// configurations on it. The slices may be appended to.
func guestOverSSH(t *testing.T, unnest string, more ...string) (bench []string, options string) {
	t.Helper()
	mustRun(t, slices.Concat([]string{unnest, "vm", "up", "--pool", "0", "--vcpus", "2"}, more, []string{"node1"})...)
	t.Cleanup(func() { mustRun(t, unnest, "vm", "down", "--all") })
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
	home, _ := home(t)
	writeKnownHosts(t, home, knownhosts.Line([]string{guestAddress}, hostKey))
	bench = inNamespace(l.HostNS(), home, unnest, "bench", "--noisy")
	return slices.Clip(bench), "host: 'ssh://root@" + guestAddress + "', identity: " + filepath.Join(l.Dir, "ssh.key")
}

// Servers on a host behind SSH are loaded over the network. If the run is killed, they end.
func testServersOverSSH(t *testing.T, unnest string, bench []string, options string) {
	t.Helper()
	write := func(configuration, more string) (file, dir string) {
		dir = t.TempDir()
		text := "name: remote\nsuite: applications\nrepetitions: 2\nwarmup: 0\nconfigurations:\n  - {" + configuration + ", " + options +
			"}\ncases:\n  - {name: udp_rr, workload: sockperf, protocol: udp, sizes: [64], duration: 1s, timeout: 60s}\n" + more
		file = filepath.Join(dir, "remote.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file, filepath.Join(dir, "run")
	}
	file, dir := write("name: nat, stack: ssh/containerd, network: nat", "  - {name: memcached, workload: memcached, duration: 1s, timeout: 60s, options: {threads: 1, connections: 4}}\n")
	r := launch(t, append(bench, file, "-o", dir)...)
	if code := r.end(t, bringUp); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, r.out.String())
	}
	assertState(t, dir, result.Complete)
	run, samples, err := rundir.Load(dir)
	if err != nil || len(run.Guests) != 1 || run.Guests[0].Name != "ssh" || run.Tools["memcached"] == "" || run.Tools["sockperf"] == "" {
		t.Errorf("%v, hosts %+v, tools %v", err, run.Guests, run.Tools)
	}
	values := map[string]int{}
	for _, s := range samples {
		if s.Value > 0 {
			values[s.Metric]++
		}
	}
	for _, want := range []string{"latency_mean", "response_rate", "guest_sys", "server_sys"} {
		if values[want] < 2 {
			t.Errorf("%d values of %s, want 2", values[want], want)
		}
	}
	assertLeftInGuest(t, unnest, "")

	file, dir = write("name: machine, stack: ssh", "")
	r = launch(t, append(bench, file, "--repetitions", "100", "-o", dir)...)
	r.awaitExecutions(t, dir, 1)
	r.kill(t)
	mustRun(t, unnest, "clean")
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Second) {
		left := mustRun(t, unnest, "vm", "ssh", "node1", "sh", "-c", "pidof sockperf || true")
		if strings.TrimSpace(left) == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the killed run has left servers: processes %s", left)
		}
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
