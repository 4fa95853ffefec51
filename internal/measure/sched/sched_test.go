package sched

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// privileged skips the test unless it may change the machine.
func privileged(t *testing.T) {
	t.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root: set UNNEST_PRIVILEGED=1")
	}
}

// The scripts of worker processes, which have one thread each.
const (
	busy     = "while :; do :; done"
	blocked  = "exec sleep 3600"
	sleeping = "while :; do sleep 0.01; done" // the shell waits for another process each time
)

// firstProcessor is the first processor that this process may use.
func firstProcessor(t *testing.T) (one unix.CPUSet) {
	t.Helper()
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(os.Getpid(), &all); err != nil {
		t.Fatal(err)
	}
	for i := 0; one.Count() == 0; i++ {
		if all.IsSet(i) {
			one.Set(i)
		}
	}
	return one
}

// worker starts a shell on the first processor, and waits until it runs its script: before,
// it can wait for its pages.
func worker(t *testing.T, script string) int {
	t.Helper()
	one := firstProcessor(t)
	cmd := exec.Command("sh", "-c", "echo ready; "+script)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if _, err := out.Read(make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	if err := unix.SchedSetaffinity(cmd.Process.Pid, &one); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

// group makes a control group with a weight, in shares of version 1, and moves a process
// there.
func group(t *testing.T, name string, shares int, pid int) string {
	t.Helper()
	dir, file, weight := "/sys/fs/cgroup/cpu/", "cpu.shares", shares
	if _, err := os.Stat(dir + file); err != nil {
		dir, file, weight = "/sys/fs/cgroup/", "cpu.weight", max(1, shares*100/1024)
		control(t)
	}
	dir += fmt.Sprintf("unnest-sched-%d-%s", os.Getpid(), name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { remove(t, dir) })
	write(t, filepath.Join(dir, file), weight)
	write(t, filepath.Join(dir, "cgroup.procs"), pid)
	return dir
}

// remove moves the processes of a control group to the root of its hierarchy and removes it.
func remove(t *testing.T, dir string) {
	t.Helper()
	root := "/sys/fs/cgroup/"
	if _, err := os.Stat(root + "cpu/cgroup.procs"); err == nil {
		root += "cpu/"
	}
	inside, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		t.Error(err)
	}
	for pid := range strings.Lines(string(inside)) {
		if err := os.WriteFile(root+"cgroup.procs", []byte(strings.TrimSpace(pid)), 0); err != nil {
			t.Error(err)
		}
	}
	if err := os.Remove(dir); err != nil {
		t.Error(err)
	}
}

// control lets the groups of version 2 below the root have weights, while the test runs.
func control(t *testing.T) {
	t.Helper()
	const file = "/sys/fs/cgroup/cgroup.subtree_control"
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(" "+strings.TrimSpace(string(before))+" ", " cpu ") {
		return
	}
	if err := os.WriteFile(file, []byte("+cpu"), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.WriteFile(file, []byte("-cpu"), 0) })
}

func write(t *testing.T, file string, n int) {
	t.Helper()
	if err := os.WriteFile(file, []byte(strconv.Itoa(n)), 0); err != nil {
		t.Fatal(err)
	}
}

// account is what the kernel counts of a process with one thread.
type account struct {
	cpu                    time.Duration
	voluntary, involuntary uint64
}

func kernel(t *testing.T, pid int) (a account) {
	t.Helper()
	schedstat, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	number := func(text string) uint64 {
		n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	a.cpu = time.Duration(number(strings.Fields(string(schedstat))[0]))
	for line := range strings.Lines(string(status)) {
		switch name, value, _ := strings.Cut(line, ":"); name {
		case "voluntary_ctxt_switches":
			a.voluntary = number(value)
		case "nonvoluntary_ctxt_switches":
			a.involuntary = number(value)
		}
	}
	return a
}

// accounts are the readings of the kernel before and after the start and the stop of a
// count. Other processes can delay this one anywhere in between.
type accounts [4]account

// between checks that what was counted lies between what the kernel counted within the
// count and around it. The kernel's readings are late by a tick.
func (a accounts) between(t *testing.T, name string, d Counters) {
	t.Helper()
	const late, few = 50 * time.Millisecond, 3
	if least, most := a[2].cpu-a[1].cpu, a[3].cpu-a[0].cpu; d.CPU < least*9/10-late || d.CPU > most+late {
		t.Errorf("%s: %v of CPU time, the kernel counts %v to %v", name, d.CPU, least, most)
	}
	for _, s := range []struct {
		kind                  string
		counted, inside, most uint64
	}{
		{"voluntary", d.Voluntary, a[2].voluntary - a[1].voluntary, a[3].voluntary - a[0].voluntary},
		{"involuntary", d.Involuntary, a[2].involuntary - a[1].involuntary, a[3].involuntary - a[0].involuntary},
	} {
		if s.counted+few < s.inside*9/10 || s.counted > s.most+few {
			t.Errorf("%s: %d %s switches, the kernel counts %d to %d", name, s.counted, s.kind, s.inside, s.most)
		}
	}
}

// count counts domains for a while, together with the kernel's accounts of processes.
func count(t *testing.T, domains []Domain, pids map[string]int) (Reading, map[string]accounts) {
	t.Helper()
	all := map[string]accounts{}
	look := func(i int) {
		for name, pid := range pids {
			a := all[name]
			a[i] = kernel(t, pid)
			all[name] = a
		}
	}
	look(0)
	c, err := Start(domains)
	if err != nil {
		t.Fatal(err)
	}
	look(1)
	time.Sleep(3 * time.Second)
	look(2)
	r, err := c.Stop()
	if err != nil {
		t.Fatal(err)
	}
	look(3)
	if r.Lost > 0 {
		t.Errorf("%d threads lost", r.Lost)
	}
	return r, all
}

// always checks that busy threads run or wait all the time, on however busy a host. What the
// kernel tells of an execution that began without an event is a tick late.
func always(t *testing.T, name string, d Counters, window time.Duration) {
	t.Helper()
	if left := window - d.CPU - d.Waiting; left.Abs() > window/1000 {
		t.Errorf("%s ran %v and waited %v of %v, %v are missing: %+v", name, d.CPU, d.Waiting, window, left, d)
	}
	if d.Involuntary > d.Executions+1 { // it can have run at the start
		t.Errorf("%s was interrupted %d times in %d executions", name, d.Involuntary, d.Executions)
	}
}

// On a host with ten times as many busy threads as processors, each of them has all of its time
// accounted for, although the kernel has no events of some switches.
func TestOverload(t *testing.T) {
	privileged(t)
	var domains []Domain
	for i := range 20 {
		domains = append(domains, Domain{Name: strconv.Itoa(i), Processes: []int{worker(t, busy)}})
	}
	for range 3 {
		c, err := Start(domains)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second / 2)
		r, err := c.Stop()
		if err != nil {
			t.Fatal(err)
		}
		for name, d := range r.Domains {
			always(t, name, d, r.Window)
		}
	}
}

// Two busy processes share a processor by the weights of their control groups.
func TestWeights(t *testing.T) {
	privileged(t)
	pids := map[string]int{"light": worker(t, busy), "heavy": worker(t, busy), "blocked": worker(t, blocked)}
	r, kernel := count(t, []Domain{
		{Name: "light", Group: group(t, "light", 256, pids["light"])},
		{Name: "heavy", Group: group(t, "heavy", 1024, pids["heavy"])},
		{Name: "blocked", Group: group(t, "blocked", 1024, pids["blocked"])},
	}, pids)
	light, heavy, idle := r.Domains["light"], r.Domains["heavy"], r.Domains["blocked"]
	for name, d := range r.Domains {
		kernel[name].between(t, name, d)
	}
	always(t, "light", light, r.Window)
	always(t, "heavy", heavy, r.Window)
	if share := heavy.CPU.Seconds() / light.CPU.Seconds(); share < 2 || share > 8 {
		t.Errorf("heavy had %v times as much as light, want about 4", share)
	}
	if light.Executions == 0 || light.PerExecution() <= 0 || light.Involuntary == 0 {
		t.Errorf("light: %+v, want executions that others end", light)
	}
	if idle.CPU > r.Window/50 || idle.Waiting > r.Window/50 {
		t.Errorf("the blocked process ran %v and waited %v", idle.CPU, idle.Waiting)
	}
	if r.Rest.CPU <= 0 || r.Rest.Executions == 0 {
		t.Errorf("rest of the host: %+v", r.Rest)
	}
}

// A domain can be processes, and contain groups below its own.
func TestProcesses(t *testing.T) {
	privileged(t)
	pids := map[string]int{"busy": worker(t, busy), "sleeping": worker(t, sleeping), "below": worker(t, busy)}
	above := group(t, "above", 1024, pids["below"])
	below := filepath.Join(above, "below")
	if err := os.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(below, "cgroup.procs"), pids["below"])
	t.Cleanup(func() { remove(t, below) })
	r, kernel := count(t, []Domain{
		{Name: "busy", Processes: []int{pids["busy"]}},
		{Name: "sleeping", Processes: []int{pids["sleeping"]}},
		{Name: "below", Group: above},
	}, pids)
	for name, d := range r.Domains {
		kernel[name].between(t, name, d)
	}
	always(t, "busy", r.Domains["busy"], r.Window)
	always(t, "below", r.Domains["below"], r.Window)
	if d := r.Domains["sleeping"]; d.Voluntary == 0 || d.Executions == 0 {
		t.Errorf("sleeping: %+v, want executions that it ended itself", d)
	}
}

// Software interrupts are counted: those of the whole machine are at least those that
// sending packets over loopback raises.
func TestSoftirq(t *testing.T) {
	privileged(t)
	c, err := Start(nil)
	if err != nil {
		t.Fatal(err)
	}
	from, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(from)
	for range 2000 {
		_ = unix.Sendto(from, []byte("x"), 0, &unix.SockaddrInet4{Port: 9, Addr: [4]byte{127, 0, 0, 1}})
	}
	r, err := c.Stop()
	if err != nil {
		t.Fatal(err)
	}
	if r.Rest.Softirq <= 0 {
		t.Errorf("no time in software interrupts: %+v", r.Rest)
	}
	if len(r.Domains) != 0 || r.Window <= 0 {
		t.Errorf("%+v", r)
	}
}

func TestStartRefuses(t *testing.T) {
	for name, domains := range map[string][]Domain{
		"domain a: no control group and no process: name one":                            {{Name: "a"}},
		"domain a: /tmp is not a control group: name a directory below /sys/fs/cgroup":   {{Name: "a", Group: "/tmp"}},
		"domain a: find control group /sys/fs/cgroup/missing: no such file or directory": {{Name: "a", Group: "/sys/fs/cgroup/missing"}},
		"count 65 domains: want at most 64":                                              make([]Domain, 65),
	} {
		if c, err := Start(domains); c != nil || err == nil || err.Error() != name {
			t.Errorf("error %v, want %s", err, name)
		}
	}
}

func TestPerExecution(t *testing.T) {
	c := Counters{CPU: time.Second, Executions: 500}
	if got := c.PerExecution(); got != 2*time.Millisecond {
		t.Errorf("%v for each execution, want 2ms", got)
	}
	if d := (Counters{}).PerExecution(); d != 0 {
		t.Errorf("%v for each of no executions", d)
	}
}
