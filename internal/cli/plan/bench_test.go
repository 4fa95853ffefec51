package plan

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/summary"
	"unnest.io/unnest/internal/plan/synthetic"
)

// programVariable makes the test program the command "plan".
const programVariable = "UNNEST_TEST_PLAN"

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) == "" {
		os.Exit(m.Run())
	}
	cmd := NewCmd(terminal.System(), Run)
	cmd.SetArgs(os.Args[1:])
	if err := cmd.Execute(); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// The targets on two processors: part 0 of the Google trace, and a million containers, each
// with all plans and bounds in a new process.
const (
	pieceTarget   = 3 * time.Second
	million       = 1_000_000
	millionTarget = 60 * time.Second
	millionMemory = 2 << 30
)

// equalContainers is how many equal containers there are for each generated one.
const equalContainers = 12

// BenchmarkPlan measures the whole command in new processes: its time, CPU time, largest memory,
// and how far its best plans are above the bound. make bench-plan runs it.
func BenchmarkPlan(b *testing.B) {
	for _, oversize := range []string{"drop", "cut"} {
		b.Run("piece/"+oversize, func(b *testing.B) {
			dir := os.Getenv(googleVariable)
			if dir == "" {
				b.Skipf("%s is not set: NO REAL DATA IS MEASURED", googleVariable)
			}
			run := benchPlans(b, "google2011:"+dir, "--oversize", oversize)
			run.target(b, oversize == "drop", run.wall < pieceTarget, "part 0 of the Google trace in under %v", pieceTarget)
		})
	}
	b.Run("file", func(b *testing.B) {
		run := benchPlans(b, "csv:"+generatedFile(b, million), "--oversize", "cut")
		run.target(b, true, run.wall < millionTarget && run.memory < millionMemory, "a million containers in under %v and %d GiB", millionTarget, millionMemory>>30)
	})
	for _, containers := range []int{million / 100, million / 10, million} {
		b.Run("owner/"+strconv.Itoa(containers), func(b *testing.B) {
			benchPlans(b, "csv:"+generatedFile(b, containers), "--oversize", "cut", "--owner", ownerCluster)
		})
	}
	b.Run("equal", func(b *testing.B) {
		benchPlans(b, "csv:"+equalFile(b, equalContainers*million), "--oversize", "cut")
	})
	for _, scale := range []int{10, 100, 1000} {
		for _, oversize := range []string{"drop", "cut"} {
			if scale == 1000 && oversize == "cut" {
				continue // two hours
			}
			b.Run(fmt.Sprintf("scale/%s/%d", oversize, scale), func(b *testing.B) {
				benchPlans(b, generated+":"+strconv.Itoa(scale), "--oversize", oversize)
			})
		}
	}
}

// process is the last run of the command in a process of its own.
type process struct {
	wall, cpu time.Duration
	memory    int64 // largest resident set in bytes; the kernel counts at least that of the parent
	result    summary.Plan
}

// benchPlans runs the command, and reports what a run takes.
func benchPlans(b *testing.B, of string, args ...string) (last process) {
	b.Helper()
	var cpu time.Duration
	var memory int64
	for b.Loop() {
		last = newProcess(b, append([]string{"--trace", of}, args...)...)
		cpu, memory = cpu+last.cpu, max(memory, last.memory)
	}
	b.ReportMetric(cpu.Seconds()/float64(b.N), "cpu-s/op")
	b.ReportMetric(float64(memory)/1e6, "MB")
	b.ReportMetric(float64(last.result.Containers), "containers")
	b.ReportMetric(100*last.result.Gap, "gap-%")
	return last
}

// target says whether a run met its target, if there is one.
func (p process) target(b *testing.B, is, met bool, what string, args ...any) {
	if is && !met {
		b.Logf("MISSED on two processors: "+what+"; it took %v and used %.2f processors", append(args, p.wall, p.cpu.Seconds()/p.wall.Seconds())...)
	}
}

// newProcess runs the command once.
func newProcess(t testing.TB, args ...string) process {
	t.Helper()
	file := filepath.Join(t.TempDir(), "result.json")
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", append(args, "-o", file)...)
	cmd.Env = append(os.Environ(), programVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	begin := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
	p := process{wall: time.Since(begin), cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		p.memory = usage.Maxrss << 10
	}
	data, err := os.ReadFile(file)
	if err := errors.Join(err, json.Unmarshal(data, &p.result)); err != nil {
		t.Fatal(err)
	}
	p.result.PerUser = nil // which may be many
	return p
}

// generatedFile writes whole generated users with at least most containers.
func generatedFile(t testing.TB, most int) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "generated.csv")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	w := bufio.NewWriter(f)
	_, _ = fmt.Fprintln(w, "user,pod,container,cpu,memory") // Flush returns its error
	for u := range (synthetic.Users{Seed: 1, Scale: most}).All() {
		if n >= most {
			break
		}
		n += summary.Containers(u)
		for _, p := range u.Pods {
			for _, c := range p.Containers {
				_, _ = fmt.Fprintf(w, "%s,%s,%s,%d.%09d,%d\n", u.Name, p.Name, c.Name, c.Request.CPU/cluster.VCPU, c.Request.CPU%cluster.VCPU, c.Request.Memory)
			}
		}
	}
	if err := errors.Join(w.Flush(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// equalFile writes pods of one user with so many containers of few sizes, as the batch jobs of
// Alibaba's trace of 2017 are. The numbers of containers of pods have a Pareto distribution up to
// 20,000, and the containers of a pod are equal.
func equalFile(t testing.TB, containers int) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "equal.csv")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(f)
	random := rand.New(rand.NewPCG(1, 60))
	type size struct{ cpu, memory int } // thousandths of a vCPU, MiB
	var sizes []size
	for range 60 {
		sizes = append(sizes, size{[]int{50, 100, 200, 250, 500, 1000}[random.IntN(6)], []int{64, 128, 256, 400, 512, 1000, 2000}[random.IntN(7)]})
	}
	_, _ = fmt.Fprintln(w, "user,pod,container,cpu,memory")
	for pod := 0; containers > 0; pod++ {
		n := min(int(min(20*math.Pow(1-random.Float64(), -1/.7), 20_000)), containers)
		containers -= n
		s := sizes[random.IntN(len(sizes))]
		for k := range n {
			_, _ = fmt.Fprintf(w, "u,p%d,%d,%dm,%dMi\n", pod, k, s.cpu, s.memory) // Flush returns a failure
		}
	}
	if err := errors.Join(w.Flush(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// What the benchmark runs is the command: one owner of equal containers, and generated users.
func TestNewProcess(t *testing.T) {
	if p := newProcess(t, "--trace", "csv:"+equalFile(t, 2000), "--oversize", "cut"); p.result.Users != 1 || p.result.Containers != 2000 || p.wall <= 0 || p.cpu <= 0 || p.memory <= 0 {
		t.Errorf("equal containers: %d users, %d containers, %+v", p.result.Users, p.result.Containers, p)
	}
	if p := newProcess(t, "--trace", "csv:"+generatedFile(t, 500)); p.result.Users == 0 || p.result.Gap < 0 {
		t.Errorf("generated users: %d users, gap %v", p.result.Users, p.result.Gap)
	}
}
