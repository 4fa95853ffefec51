package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"unnest.io/unnest/internal/testbed/fleet"
)

// hostloRounds returns the number of rounds of TestHostloRounds: 10, which take half a minute in
// emulated guests, or UNNEST_ROUNDS.
func hostloRounds(t *testing.T) int {
	t.Helper()
	text := cmp.Or(os.Getenv("UNNEST_ROUNDS"), "10")
	rounds, err := strconv.Atoi(text)
	if err != nil || rounds < 10 {
		t.Fatalf("UNNEST_ROUNDS %q: want 10 or more", text)
	}
	return rounds
}

// roundGuests returns the number of guests: 3, or UNNEST_HOSTLO_GUESTS. A pod has fractions in
// two or more of them, one in each.
func roundGuests(t *testing.T) int {
	t.Helper()
	if os.Getenv("UNNEST_HOSTLO_GUESTS") == "" {
		return 3
	}
	return hostloGuests(t)
}

const (
	// roundsAtOnce is the maximum number of pods at the same time.
	roundsAtOnce = 8
	// podRounds is the mean number of rounds of a pod. With one round, creating namespaces
	// would be half of the work of an emulated guest.
	podRounds = 10
	// retryLimit bounds the time for which an ADD or DEL is retried, and the time until all
	// fractions know a change, while the host daemon is killed.
	retryLimit = 2 * time.Minute
)

// rounds counts what pods do: they join segments, communicate, and leave.
type rounds struct {
	*nodes
	in []*node

	done, pods, adds, addRetries, dels, delRetries, answers, lateAnswers, refusals, lateRefusals atomic.Int64
}

// Many segments are created and removed. Several pods at a time join them with random fractions,
// communicate, and leave, while the host daemon is killed repeatedly. At the end nothing may be
// left of them, in the guests and on the host.
func TestHostloRounds(t *testing.T) {
	total := hostloRounds(t)
	n := newNodes(t, func(f *fleet.Fleet) { f.Policy.Tenants[0].Limits.RequestsPerSecond = 0 })
	s := &rounds{nodes: n, in: n.bootAll(roundGuests(t), fleet.Options{Slots: roundsAtOnce + 4, Memory: 512 << 20})}
	before := s.inventory()
	begin := time.Now()
	kills, err := s.run(total)
	took := time.Since(begin)
	t.Logf("%d rounds of %d pods over %d guests in %v: %d ADDs (%d retried), %d DELs (%d retried), %d answers (%d late), %d refusals (%d late), daemon killed %d times",
		s.done.Load(), s.pods.Load(), len(s.in), took.Round(time.Second), s.adds.Load(), s.addRetries.Load(), s.dels.Load(), s.delRetries.Load(),
		s.answers.Load(), s.lateAnswers.Load(), s.refusals.Load(), s.lateRefusals.Load(), kills)
	if err != nil {
		t.Error(err)
	}
	if done, adds := s.done.Load(), s.adds.Load(); done != int64(total) || adds < 2*done || s.dels.Load() < adds || s.answers.Load() < 4*done {
		t.Errorf("%d of %d rounds: want all, each with at least two fractions that call each other", done, total)
	}
	if least := min(20, total/10); kills < least {
		t.Errorf("the daemon was killed %d times in %d rounds, want at least %d", kills, total, least)
	}
	if late := s.lateAnswers.Load(); late > int64(kills) {
		t.Errorf("%d answers were late, want at most one for each of %d kills of the daemon", late, kills)
	}
	s.nothingLeft(t, before)
}

// run makes all rounds, until the deadline, and returns how often the daemon was killed
// meanwhile, and the errors. During the last tenth the daemon is not killed, so that a restart
// does not hide what a daemon leaves behind.
func (s *rounds) run(total int) (kills int, err error) {
	enough, cancel := beforeDeadline(s.t, 2*time.Minute)
	defer cancel()
	ctx, stop := context.WithCancel(enough)
	defer stop()
	killed := make(chan error, 1)
	go func() {
		var err error
		kills, err = s.killDaemons(s.afterRounds(ctx, min(12, total/4)))
		killed <- err
	}()
	var (
		workers sync.WaitGroup
		next    atomic.Int64
		mu      sync.Mutex
		errs    []error
	)
	for range max(2, min(roundsAtOnce, total/4)) { // fewer pods would leave too little concurrency
		workers.Go(func() {
			err := s.work(func() (k int, ok bool) {
				k = int(next.Add(1))
				if k > total-max(1, total/10) {
					stop()
				}
				return k, k <= total && enough.Err() == nil
			})
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	workers.Wait()
	stop()
	errs = append(errs, <-killed) // kills is set before
	return kills, errors.Join(errs...)
}

// afterRounds returns a function that waits until 2 to 1+more more rounds are done, and for a
// random time of up to 2 s. It returns false when ctx ends before.
func (s *rounds) afterRounds(ctx context.Context, more int) func() bool {
	due := int64(0)
	return func() bool {
		for due += int64(2 + rand.IntN(more)); s.done.Load() < due; time.Sleep(50 * time.Millisecond) {
			if ctx.Err() != nil {
				return false
			}
		}
		time.Sleep(time.Duration(rand.IntN(2000)) * time.Millisecond)
		return true
	}
}

// work makes rounds until next returns false, with one pod after the other.
func (s *rounds) work(next func() (k int, ok bool)) error {
	var p *roundPod
	var errs []error
	for k, ok := next(); ok; k, ok = next() {
		var err error
		if p == nil {
			p, err = s.newPod(fmt.Sprintf("pod%d", k))
		}
		if err == nil {
			err = p.round(fmt.Sprintf("round%d", k))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("round %d: %w", k, err))
		}
		if err != nil || rand.IntN(podRounds) == 0 {
			errs = append(errs, p.end())
			p = nil
		}
		if done := s.done.Add(1); done%100 == 0 {
			s.t.Logf("%d rounds", done)
		}
	}
	if p != nil {
		errs = append(errs, p.end())
	}
	return errors.Join(errs...)
}

// roundPod is a pod that may have a fraction in each guest.
type roundPod struct {
	*rounds
	name, segment string
	all           []*roundFraction
}

// roundFraction is a pod's network namespace in a guest, with a shell outside and one inside.
type roundFraction struct {
	*node
	outside, inside *shell
	joined          bool
}

// newPod creates the namespaces of a pod, each with a server that answers with the pod and the
// guest. The caller must call end, also after an error.
func (s *rounds) newPod(name string) (*roundPod, error) {
	p := &roundPod{rounds: s, name: name}
	s.pods.Add(1)
	for _, m := range s.in {
		p.all = append(p.all, &roundFraction{node: m})
	}
	return p, p.each(p.all, func(f *roundFraction) (err error) {
		if f.outside, err = f.openShell("bash"); err != nil {
			return err
		}
		_, err = f.outside.do(fmt.Sprintf(`ip netns add %[1]s && ip -n %[1]s link set lo up &&
mkdir /tmp/%[1]s && echo %[1]s of %[2]s >/tmp/%[1]s/index.html &&
nsenter --net=/run/netns/%[1]s busybox httpd -p 127.0.0.1:%[3]d -h /tmp/%[1]s`, name, f.Name, f.port()))
		if err == nil {
			f.inside, err = f.openShell("nsenter", "--net=/run/netns/"+name, "bash")
		}
		if err == nil {
			_, err = f.inside.do(ask)
		}
		return err
	})
}

// end removes the namespaces of the pod.
func (p *roundPod) end() error {
	return p.each(p.all, func(f *roundFraction) error {
		if f.outside == nil {
			return nil
		}
		closed := f.inside.close()
		_, err := f.outside.do(fmt.Sprintf("kill $(ip netns pids %[1]s); ip netns del %[1]s && rm -r /tmp/%[1]s", p.name))
		return errors.Join(closed, err, f.outside.close())
	})
}

// round has some fractions of the pod join a segment and call each other. One leaves, and may
// join again. Then all leave.
func (p *roundPod) round(segment string) error {
	p.segment = segment
	in := slices.Clone(p.all)
	rand.Shuffle(len(in), func(i, j int) { in[i], in[j] = in[j], in[i] })
	// Two to all fractions; small numbers are more likely.
	in = in[:2+min(rand.IntN(len(in)-1), rand.IntN(len(in)-1))]
	err := p.live(in)
	return errors.Join(err, p.each(in, func(f *roundFraction) error {
		if !f.joined && err == nil {
			return nil
		}
		return p.leave(f)
	}))
}

func (p *roundPod) live(in []*roundFraction) error {
	if err := p.each(in, p.join); err != nil {
		return err
	}
	leaver, rest := in[0], in[1:]
	if err := p.each(in, func(f *roundFraction) error { return p.callServers(f, in, leaver.port()+100) }); err != nil {
		return err
	}
	if err := p.leave(leaver); err != nil {
		return err
	}
	asker := rest[rand.IntN(len(rest))]
	if err := p.callServers(asker, rest, leaver.port()); err != nil {
		return fmt.Errorf("after %s has left: %w", leaver.Name, err)
	}
	if rand.IntN(4) > 0 {
		return nil
	}
	if err := p.join(leaver); err != nil {
		return fmt.Errorf("join again: %w", err)
	}
	if err := p.callServers(asker, in, leaver.port()+100); err != nil {
		return fmt.Errorf("after %s has joined again: %w", leaver.Name, err)
	}
	return nil
}

// each calls do for several fractions: half of the times concurrently, else one after the other.
func (p *roundPod) each(in []*roundFraction, do func(*roundFraction) error) error {
	errs := make([]error, len(in))
	together := rand.IntN(2) == 0
	var all sync.WaitGroup
	for i, f := range in {
		one := func() {
			if err := do(f); err != nil {
				errs[i] = fmt.Errorf("%s on %s: %w", p.name, f.Name, err)
			}
		}
		if together {
			all.Go(one)
		} else {
			one()
		}
	}
	all.Wait()
	return errors.Join(errs...)
}

// retry calls try until it succeeds or must not be repeated, with growing pauses.
func retry(try func() (again bool, err error)) error {
	end := time.Now().Add(retryLimit)
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		again, err := try()
		if err == nil || !again {
			return err
		}
		if time.Now().Add(wait).After(end) {
			return fmt.Errorf("retried for %v: %w", retryLimit, err)
		}
		time.Sleep(wait)
	}
}

// join adds the fraction to the segment. As runtimes do, it sends a DEL after a failed ADD, and
// retries if the plugin asks for that.
func (p *roundPod) join(f *roundFraction) error {
	return retry(func() (again bool, err error) {
		if err = p.call(f, "ADD"); err == nil {
			f.joined = true
			p.adds.Add(1)
			return false, nil
		}
		const tryAgainLater = 11
		failure := &cniError{}
		if !errors.As(err, &failure) || failure.Code != tryAgainLater {
			return false, err
		}
		p.addRetries.Add(1)
		if left := p.leave(f); left != nil {
			return false, errors.Join(err, left)
		}
		return true, err
	})
}

// leave removes the fraction from the segment, and retries as runtimes do. Only lo must be left.
func (p *roundPod) leave(f *roundFraction) error {
	err := retry(func() (again bool, err error) {
		if err = p.call(f, "DEL"); err != nil {
			p.delRetries.Add(1)
			return true, err
		}
		f.joined = false
		p.dels.Add(1)
		return false, nil
	})
	if err != nil {
		return err
	}
	links, err := f.inside.do("mapfile -t all </proc/net/dev; printf '%s\\n' \"${all[@]:2}\"")
	if err == nil && (strings.Count(links, "\n") != 1 || !strings.Contains(links, "lo:")) {
		err = fmt.Errorf("links of the pod after DEL: %s", links)
	}
	return err
}

// call runs the plugin for a fraction.
func (p *roundPod) call(f *roundFraction, verb string) error {
	out, err := f.outside.do(fmt.Sprintf(`CNI_COMMAND=%s CNI_CONTAINERID=%[2]s CNI_NETNS=/run/netns/%[2]s CNI_IFNAME=eth0 CNI_PATH=/usr/lib/cni /usr/lib/cni/hostlo <<'END'
{"cniVersion": "1.1.0", "name": "e2e", "type": "hostlo", "server": %[3]q, "segment": %[4]q, "key": "known-to-the-guests-of-%[4]s"}
END`, verb, p.name, daemonAddress, p.segment))
	failure := &cniError{}
	if err != nil && json.Unmarshal([]byte(out), failure) == nil && failure.Code > 0 {
		return failure
	}
	return err
}

// ask is a shell function that prints the answers of the servers on ports. A connect may take
// 15 s (three SYNs after the first).
const ask = `echo 3 >/proc/sys/net/ipv4/tcp_syn_retries
ask() {
	local port who line
	for port; do
		exec 3<>/dev/tcp/127.0.0.1/$port || return
		printf "GET / HTTP/1.0\r\n\r\n" >&3
		who=none
		while IFS= read -r -t 30 line <&3; do who=$line; done
		echo "$who"
	done
}`

// ask returns the answers of the servers on ports. An error says that one does not answer.
func (f *roundFraction) ask(ports ...int) (string, error) {
	return f.inside.do("ask " + strings.Trim(fmt.Sprint(ports), "[]"))
}

// callServers has a fraction call all servers, which must be those of this pod, and then a port
// without a server, which must refuse. A server may be unreachable at first, if a daemon was
// killed before it told all fractions about a new one. The next daemon tells them.
func (p *roundPod) callServers(f *roundFraction, servers []*roundFraction, dead int) error {
	ports, want := []int{}, ""
	for _, server := range servers {
		ports = append(ports, server.port())
		want += fmt.Sprintf("%s of %s\n", p.name, server.Name)
	}
	late, output := int64(0), ""
	err := retry(func() (again bool, err error) {
		got, err := f.ask(append(ports, dead)...)
		if rest, all := strings.CutPrefix(got, want); all && err != nil {
			output = rest
			return false, nil
		}
		err = fmt.Errorf("call %q and port %d, which has no server: %w", want, dead, cmp.Or(err, errors.New(got)))
		if late == 0 {
			p.t.Logf("late: %s on %s %v", p.segment, f.Name, err)
		}
		late = 1
		return !p.foreign(got), err
	})
	p.lateAnswers.Add(late)
	if err != nil {
		return err
	}
	p.answers.Add(int64(len(servers)))
	return p.refused(f, dead, output)
}

// foreign reports whether a server of another pod has answered.
func (p *roundPod) foreign(answers string) bool {
	for line := range strings.Lines(answers) {
		if strings.Contains(line, " of node") && !strings.HasPrefix(line, p.name+" of ") {
			return true
		}
	}
	return false
}

// refused returns an error unless the output says that a connect to the port was refused. The
// refusal may be late if a fraction has left while there was no daemon. The others then wait
// for its refusal until the pending DEL in its guest is done, which the next STATUS does.
func (p *roundPod) refused(f *roundFraction, dead int, output string) error {
	const late = "Connection timed out"
	if strings.Contains(output, late) {
		p.lateRefusals.Add(1)
	}
	return retry(func() (again bool, err error) {
		switch {
		case strings.Contains(output, "Connection refused"):
			p.refusals.Add(1)
			return false, nil
		case !strings.Contains(output, late):
			return false, fmt.Errorf("port %d, which has no server, does not refuse: %s", dead, output)
		}
		if err := p.finishPending(); err != nil {
			return false, err
		}
		output, _ = f.ask(dead)
		return true, fmt.Errorf("port %d, which has no server, does not refuse: %s", dead, output)
	})
}

// finishPending has every guest finish its pending DELs. An unreachable daemon is not an error.
func (s *rounds) finishPending() error {
	for _, m := range s.in {
		const notAvailable = 50
		_, err := m.hostlo("STATUS", "none", nil)
		failure := &cniError{}
		if err != nil && !(errors.As(err, &failure) && failure.Code == notAvailable) {
			return err
		}
	}
	return nil
}
