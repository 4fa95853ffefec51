//go:build chaos

package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"unnest.io/unnest/internal/testbed/fleet"
	"unnest.io/unnest/internal/testbed/place"
)

var (
	soakRestores = flag.Int("restores", 200, "guests that TestRestoreSoak restores")
	soakGuests   = flag.Int("restore-guests", 8, "guests that TestRestoreSoak restores at the same time, at most")
	soakMemory   = flag.Int64("restore-memory", 1024, "memory of each guest, in MiB")
	soakLimit    = flag.Duration("restore-time", time.Hour, "time after which TestRestoreSoak begins no round")
	soakSeed     = flag.Uint64("restore-seed", 0, "seed of TestRestoreSoak; 0: a random one")
	soakReport   = flag.String("restore-report", "", "file to which TestRestoreSoak writes its result")
)

// restoreSoak are the findings of TestRestoreSoak.
type restoreSoak struct {
	*nodes
	random *rand.Rand
	mu     sync.Mutex
	seen   map[string]string // what identifies a guest -> guest
	times  []time.Duration   // from launch to login, of guests that were not killed
	ahead  []time.Duration   // clocks, without the uncertainty of asking
	asked  []int             // how often each guest was asked for its time until its clock was right
	killed int               // guests while they were restored
	failed []string
}

// Guests are restored, one to -restore-guests at the same time, first as many as that. Some are
// killed on the way, as are commands that restore. No guest hangs or has anything of another, all clocks are right,
// and nothing is left.
func TestRestoreSoak(t *testing.T) {
	seed := *soakSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	s := &restoreSoak{nodes: newNodes(t, nil), random: rand.New(rand.NewPCG(seed, 0)), seen: map[string]string{}}
	m := s.launch(s.options("first"))
	s.check(m.Kill())
	s.check(s.fleet.Lab.RemoveGuest("first"))
	begin, restored, commands, rounds := time.Now(), 0, 0, 0
	for ; restored < *soakRestores && time.Since(begin) < *soakLimit; rounds++ {
		count := 1 + s.random.IntN(*soakGuests)
		if rounds == 0 {
			count = *soakGuests
		}
		count = min(count, *soakRestores-restored)
		s.round(count, fmt.Sprintf("r%d-", rounds))
		restored += count
		if rounds%5 == 4 {
			s.killCommand()
			commands++
		}
		t.Logf("%d restored, %d killed, after %v", restored, s.killed, time.Since(begin).Round(time.Second))
	}
	for _, f := range s.failed {
		t.Error(f)
	}
	if parts, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(s.image.Root)), "snapshot-*.part")); err != nil || len(parts) > 0 {
		t.Errorf("left in the cache: %q (%v)", parts, err)
	}
	if *soakReport != "" {
		s.check(os.WriteFile(*soakReport, []byte(s.report(seed, restored, rounds, commands, time.Since(begin))), 0o644))
	}
}

func (s *restoreSoak) options(name string) fleet.Options {
	return fleet.Options{Name: name, Memory: *soakMemory << 20, Slots: 2, Snapshots: s.snapshots()}
}

// round restores count guests at the same time and kills a quarter of them on the way.
func (s *restoreSoak) round(count int, prefix string) {
	var options []fleet.Options
	var kills []time.Duration // after the launch; negative: not at all
	for k := range count {
		options = append(options, s.complete(s.options(fmt.Sprint(prefix, k))))
		after := time.Duration(-1)
		if s.random.IntN(4) == 0 {
			after = time.Duration(s.random.IntN(2000)) * time.Millisecond
		}
		kills = append(kills, after)
	}
	s.check(s.fleet.LaunchAll(s.t.Context(), options, func(i int, launched *fleet.Node) error {
		if !launched.Restored() {
			s.fail("%s was not restored: %v", launched.Name, launched.NotRestored)
		}
		s.use(&node{Node: launched, nodes: s.nodes}, kills[i])
		return nil
	}))
	for _, o := range options {
		s.check(s.fleet.Lab.RemoveGuest(o.Name))
	}
	if left := qemus(s.t, s.fleet.Lab.Dir); len(left) > 0 {
		s.fail("left after a round: %q", left)
	}
}

// use logs in to a guest and checks it, or kills it after a time that is not negative.
func (s *restoreSoak) use(m *node, after time.Duration) {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	kill := time.AfterFunc(max(after, 0), func() {
		if after >= 0 {
			_ = m.Kill()
		}
	})
	defer kill.Stop()
	ssh, _, err := s.fleet.Login(ctx, m.Node)
	if after >= 0 {
		<-m.Done()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.killed++
		if err == nil {
			_ = ssh.Close()
		}
		return
	}
	if err != nil {
		s.fail("%s: %v", m.Name, err)
		return
	}
	took := time.Since(begin)
	defer ssh.Close()
	ahead, uncertain, err := askClock(ctx, ssh)
	if err != nil || ahead.Abs() > clockTolerance+uncertain {
		s.fail("%s: the clock is %v ahead (within %v), %v", m.Name, ahead, uncertain, err)
	}
	console, err := os.ReadFile(filepath.Join(m.Dir, "console.log"))
	asked := strings.Count(string(console), "unnest-boot clock ")
	if err != nil || asked == 0 {
		s.fail("%s: it was asked for its time %d times, %v", m.Name, asked, err)
	}
	out, err := place.Output(ctx, ssh, "sh", "-c", identityScript)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err != nil || lines[0] != m.Name {
		s.fail("%s: its identity is %q, %v", m.Name, lines, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.times, s.ahead, s.asked = append(s.times, took), append(s.ahead, max(ahead.Abs()-uncertain, 0)), append(s.asked, asked)
	for _, line := range lines {
		if strings.Contains(line, ":") || strings.Contains(line, "/") {
			continue // addresses are free again after a round
		}
		if s.seen[line] != "" {
			s.failed = append(s.failed, fmt.Sprintf("%s and %s have the same %s", m.Name, s.seen[line], line))
		}
		s.seen[line] = m.Name
	}
}

// askClock returns how far a guest's clock is ahead of the host's, and how exact that is.
func askClock(ctx context.Context, p place.Place) (ahead, uncertain time.Duration, err error) {
	uncertain = time.Hour
	for range 5 {
		asked := time.Now()
		out, err := place.Output(ctx, p, "date", "+%s%N")
		took := time.Since(asked)
		if err != nil {
			return 0, 0, err
		}
		var ns int64
		if _, err := fmt.Sscan(string(out), &ns); err != nil {
			return 0, 0, err
		}
		if took/2 < uncertain {
			uncertain, ahead = took/2, time.Unix(0, ns).Sub(asked.Add(took/2))
		}
	}
	return ahead, uncertain, nil
}

// killCommand kills a command that restores two guests, at a random time, and cleans.
func (s *restoreSoak) killCommand() {
	unnest := filepath.Join(s.binaries, "unnest")
	cmd := exec.Command(unnest, "vm", "up", "--slots", "2", "one", "two")
	s.check(cmd.Start())
	time.Sleep(time.Duration(s.random.IntN(3000)) * time.Millisecond)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	mustRun(s.t, unnest, "vm", "down", "--all")
	if left := qemus(s.t, os.Getenv("UNNEST_STATE")+"/vms/"); len(left) > 0 {
		s.fail("left of a killed command: %q", left)
	}
}

func (s *restoreSoak) fail(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = append(s.failed, fmt.Sprintf(format, args...))
	s.t.Logf(format, args...)
}

const soakPage = `# Soak test of restored guests

**Result.** Of %[1]d restored guests, %[5]d hung, %[6]d had something of another that must be their own, and %[13]d had a wrong clock.

For contributors: what %[1]d restores in a row showed. ` + "`make e2e TEST=TestRestoreSoak ARGS='-restore-report ../../docs/results/restore-soak.md'`" + ` writes this page.

| | |
|---|---|
| guests with %[15]d MiB restored, 1 to %[14]d at the same time, in %[2]d rounds | %[1]d |
| killed while they were restored | %[3]d |
| commands killed while they restored two more | %[4]d |
| guests that hung, or did not become ready within two minutes | %[5]d |
| guests with a name, key, certificate, boot ID, machine ID or random bytes of another | %[6]d |
| clocks that were wrong by more than 100 ms | %[13]d |
| largest error of a clock, beyond what asking for it leaves uncertain | %.0[7]f ms |
| questions for its time until a guest's clock was right, median and largest | %[16]d, %[17]d |
| launch to login, median and largest, with the others and the checks at the same time | %.1[8]f s, %.1[9]f s |
| processes, directories or parts of snapshots left | %[10]d |

The run took %[11]v on a host with 2 processors, under TCG. Its seed was %[12]d. A guest
is killed with probability 1/4, up to 2 s after its launch.
`

// report writes the result as a page.
func (s *restoreSoak) report(seed uint64, restored, rounds, commands int, took time.Duration) string {
	slices.Sort(s.times)
	slices.Sort(s.asked)
	count := func(word string) (n int) {
		for _, f := range s.failed {
			if strings.Contains(f, word) {
				n++
			}
		}
		return n
	}
	return fmt.Sprintf(soakPage, restored, rounds, s.killed, commands, count("not ready"), count("have the same"),
		slices.Max(s.ahead).Seconds()*1000, s.times[len(s.times)/2].Seconds(), s.times[len(s.times)-1].Seconds(), count("left"),
		took.Round(time.Second), seed, count("the clock is"), *soakGuests, *soakMemory,
		s.asked[len(s.asked)/2], s.asked[len(s.asked)-1])
}
