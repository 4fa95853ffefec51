package e2e

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"unnest/internal/testbed/fleet"
	"unnest/internal/testbed/place"
)

// hostloRounds is how many rounds TestHostloRounds makes: 10, which in emulated guests
// take half a minute, or UNNEST_ROUNDS.
func hostloRounds(t *testing.T) int {
	t.Helper()
	text := cmp.Or(os.Getenv("UNNEST_ROUNDS"), "10")
	rounds, err := strconv.Atoi(text)
	if err != nil || rounds < 10 {
		t.Fatalf("UNNEST_ROUNDS is %q: want 10 or more", text)
	}
	return rounds
}

// roundGuests is over how many guests their pods are split, each over two or more of
// them: three, or UNNEST_HOSTLO_GUESTS. A pod has one fraction on a guest.
func roundGuests(t *testing.T) int {
	t.Helper()
	if os.Getenv("UNNEST_HOSTLO_GUESTS") == "" {
		return 3
	}
	return hostloGuests(t)
}

const (
	// roundsAtOnce is how many pods there are at the same time, at most.
	roundsAtOnce = 8
	// podRounds is how many rounds a pod lives, on the average: making namespaces is
	// half of what an emulated guest would do otherwise.
	podRounds = 10
	// roundPatience is how long an ADD may ask to be tried again, a DEL may fail, and
	// news may take to be everywhere, while the host daemon is killed.
	roundPatience = 2 * time.Minute
)

// rounds are segments that pods make, talk in and leave.
type rounds struct {
	*nodes
	in []*node

	done, pods, adds, addRetries, dels, delRetries, answers, lateAnswers, refusals, lateRefusals atomic.Int64
}

// Many segments come and go: pods join them, each by another choice of fractions, talk
// across these and leave, several pods at a time, while the host daemon is killed again
// and again. In the end nothing is left of them, in the guests and on the host.
func TestHostloRounds(t *testing.T) {
	total := hostloRounds(t)
	n := newNodes(t, func(f *fleet.Fleet) { f.Policy.Tenants[0].Limits.RequestsPerSecond = 0 })
	s := &rounds{nodes: n, in: n.bootAll(roundGuests(t), fleet.Options{Slots: roundsAtOnce + 4, Memory: 512 << 20})}
	before := s.traces()
	begin := time.Now()
	kills, err := s.run(total)
	took := time.Since(begin)
	t.Logf("%d rounds of %d pods over %d guests in %v: %d ADDs (%d tried again), %d DELs (%d tried again), %d answers (%d times late), %d refusals (%d late), daemon killed %d times",
		s.done.Load(), s.pods.Load(), len(s.in), took.Round(time.Second), s.adds.Load(), s.addRetries.Load(), s.dels.Load(), s.delRetries.Load(),
		s.answers.Load(), s.lateAnswers.Load(), s.refusals.Load(), s.lateRefusals.Load(), kills)
	if err != nil {
		t.Error(err)
	}
	if done, adds := s.done.Load(), s.adds.Load(); done != int64(total) || adds < 2*done || s.dels.Load() < adds || s.answers.Load() < 4*done {
		t.Errorf("%d rounds of %d were made, want all, each with two fractions at least that ask each other", done, total)
	}
	if least := min(20, total/10); kills < least {
		t.Errorf("the daemon was killed %d times in %d rounds, want %d at least", kills, total, least)
	}
	if late := s.lateAnswers.Load(); late > int64(kills) {
		t.Errorf("%d answers were late, of a daemon killed %d times: news were late that nothing held up", late, kills)
	}
	s.nothingLeft(t, before)
}

// run makes all rounds, as far as there is time, and returns how often the daemon was
// killed meanwhile and what went wrong. For the last tenth there is one daemon, so that
// what a daemon leaves behind is not hidden by its death.
func (s *rounds) run(total int) (kills int, err error) {
	enough, cancel := beforeDeadline(s.t, 2*time.Minute)
	defer cancel()
	ctx, stop := context.WithCancel(enough)
	defer stop()
	killed := make(chan error, 1)
	go func() {
		var err error
		kills, err = s.killDaemons(ctx, min(12, total/4))
		killed <- err
	}()
	var (
		workers sync.WaitGroup
		next    atomic.Int64
		mu      sync.Mutex
		errs    []error
	)
	for range max(2, min(roundsAtOnce, total/4)) { // else making the pods is most of it
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
	errs = append(errs, <-killed) // and kills is set
	return kills, errors.Join(errs...)
}

// killDaemons kills the daemon when two more rounds are done, or up to so many more, at
// any moment of those under way, until ctx ends, and returns how often. In between there
// is none for a moment, and in the end there is one.
func (s *rounds) killDaemons(ctx context.Context, more int) (kills int, err error) {
	for due := int64(0); ; {
		for due += int64(2 + rand.IntN(more)); s.done.Load() < due; time.Sleep(50 * time.Millisecond) {
			if ctx.Err() != nil {
				return kills, nil
			}
		}
		time.Sleep(time.Duration(rand.IntN(2000)) * time.Millisecond)
		if err := s.replaceDaemon(); err != nil {
			return kills, err
		}
		kills++
	}
}

// work makes the rounds that it is given, with one pod after the other.
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

// roundFraction is a pod's network namespace in a guest, with a shell outside of it and
// one in it.
type roundFraction struct {
	*node
	outside, inside *shell
	joined          bool
}

// newPod makes a pod of namespaces, in each of which a server says which it is. It is
// to be ended also after an error.
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

// end takes the pod's namespaces away.
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

// round has some fractions of the pod join a segment and talk. One leaves, and may come
// back. Then all leave.
func (p *roundPod) round(segment string) error {
	p.segment = segment
	in := slices.Clone(p.all)
	rand.Shuffle(len(in), func(i, j int) { in[i], in[j] = in[j], in[i] })
	// Of two to all, fewer are likelier.
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
	if err := p.each(in, func(f *roundFraction) error { return p.talk(f, in, leaver.port()+100) }); err != nil {
		return err
	}
	if err := p.leave(leaver); err != nil {
		return err
	}
	asker := rest[rand.IntN(len(rest))]
	if err := p.talk(asker, rest, leaver.port()); err != nil {
		return fmt.Errorf("after %s has left: %w", leaver.Name, err)
	}
	if rand.IntN(4) > 0 {
		return nil
	}
	if err := p.join(leaver); err != nil {
		return fmt.Errorf("once more: %w", err)
	}
	if err := p.talk(asker, in, leaver.port()+100); err != nil {
		return fmt.Errorf("after %s has come back: %w", leaver.Name, err)
	}
	return nil
}

// each does something with several fractions, at the same time or, as often, one after
// the other.
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

// persist tries until it is done, with growing waits.
func persist(try func() (again bool, err error)) error {
	end := time.Now().Add(roundPatience)
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		again, err := try()
		if err == nil || !again {
			return err
		}
		if time.Now().Add(wait).After(end) {
			return fmt.Errorf("tried for %v: %w", roundPatience, err)
		}
		time.Sleep(wait)
	}
}

// join has the plugin make the fraction one of the segment. As runtimes do, it lets a
// DEL follow an ADD that failed, and tries again if it was told to.
func (p *roundPod) join(f *roundFraction) error {
	return persist(func() (again bool, err error) {
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

// leave has the plugin take the fraction out of the segment, which leaves it with lo
// alone. What fails is tried again, as runtimes do.
func (p *roundPod) leave(f *roundFraction) error {
	err := persist(func() (again bool, err error) {
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
		err = fmt.Errorf("after DEL the pod has %s", links)
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

// ask is a function for the shell in a fraction: it asks the servers on the ports that
// it is given who they are. A connect may take 15 s (three SYNs after the first).
const ask = `echo 3 >/proc/sys/net/ipv4/tcp_syn_retries
ask() {
	local port who line
	for port; do
		exec 3<>/dev/tcp/127.0.0.1/$port || return
		printf "GET / HTTP/1.0\r\n\r\n" >&3
		who=nobody
		while IFS= read -r -t 30 line <&3; do who=$line; done
		echo "$who"
	done
}`

// ask asks in a fraction who serves on ports. It is an error when one does not answer.
func (f *roundFraction) ask(ports ...int) (string, error) {
	return f.inside.do("ask " + strings.Trim(fmt.Sprint(ports), "[]"))
}

// talk has a fraction ask all servers, which have to be those of this pod, and then a
// port that nobody listens on, which has to be refused. A server may be missed at first
// where a daemon was killed before it told all of a fraction that has joined: the next
// one does.
func (p *roundPod) talk(f *roundFraction, servers []*roundFraction, dead int) error {
	ports, want := []int{}, ""
	for _, server := range servers {
		ports = append(ports, server.port())
		want += fmt.Sprintf("%s of %s\n", p.name, server.Name)
	}
	late, said := int64(0), ""
	err := persist(func() (again bool, err error) {
		got, err := f.ask(append(ports, dead)...)
		if rest, all := strings.CutPrefix(got, want); all && err != nil {
			said = rest
			return false, nil
		}
		err = fmt.Errorf("asked for %q and port %d, where nobody listens: %w", want, dead, cmp.Or(err, errors.New(got)))
		if late == 0 {
			p.t.Logf("late: %s on %s %v", p.segment, f.Name, err)
		}
		late = 1
		return !p.strangers(got), err
	})
	p.lateAnswers.Add(late)
	if err != nil {
		return err
	}
	p.answers.Add(int64(len(servers)))
	return p.refused(f, dead, said)
}

// strangers reports whether somebody has answered who is not of the pod.
func (p *roundPod) strangers(answers string) bool {
	for line := range strings.Lines(answers) {
		if strings.Contains(line, " of node") && !strings.HasPrefix(line, p.name+" of ") {
			return true
		}
	}
	return false
}

// refused returns an error unless a connect to the port was refused, as what it said
// tells. The refusal may be late where the pod has lost a fraction while there was no
// daemon: the others wait for that one's, until the note in its guest is worked off,
// which a runtime's next STATUS does.
func (p *roundPod) refused(f *roundFraction, dead int, said string) error {
	const late = "Connection timed out"
	if strings.Contains(said, late) {
		p.lateRefusals.Add(1)
	}
	return persist(func() (again bool, err error) {
		switch {
		case strings.Contains(said, "Connection refused"):
			p.refusals.Add(1)
			return false, nil
		case !strings.Contains(said, late):
			return false, fmt.Errorf("port %d, where nobody listens, is not refused: %s", dead, said)
		}
		if err := p.settle(); err != nil {
			return false, err
		}
		said, _ = f.ask(dead)
		return true, fmt.Errorf("port %d, where nobody listens, is not refused: %s", dead, said)
	})
}

// settle has every guest work off its notes. That there is no daemon is no error.
func (s *rounds) settle() error {
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

// shell is a shell in a guest that runs one script after the other: a session for each
// would be most of what an emulated guest does.
type shell struct {
	in  io.WriteCloser
	out *bufio.Reader
}

// openShell starts a shell by a command. It ends when it is closed, or with the
// connection.
func (m *node) openShell(args ...string) (*shell, error) {
	in, stdin := io.Pipe()
	stdout, out := io.Pipe()
	p, err := m.ssh.Start(m.nodes.t.Context(), place.Command{Args: args, Stdin: in, Stdout: out, Stderr: out})
	if err != nil {
		return nil, err
	}
	go func() { out.CloseWithError(cmp.Or(p.Wait(), io.EOF)) }()
	return &shell{stdin, bufio.NewReader(stdout)}, nil
}

// do runs a script and returns what it prints. An error quotes both.
func (s *shell) do(script string) (string, error) {
	out, code, err := s.run(script)
	if err == nil && code != "0" {
		err = fmt.Errorf("exit status %s", code)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", script, err, out)
	}
	return out, err
}

// run runs a script and returns what it prints, and its exit status.
func (s *shell) run(script string) (out, code string, err error) {
	const mark = "exit status of the script: "
	if _, err := fmt.Fprintf(s.in, "{\n%s\n} </dev/null 2>&1; printf '\\n%s%%d\\n' $?\n", script, mark); err != nil {
		return "", "", err
	}
	for {
		line, err := s.out.ReadString('\n')
		if code, ok := strings.CutPrefix(line, mark); ok {
			return strings.TrimSuffix(out, "\n"), strings.TrimSpace(code), nil
		}
		out += line
		if err != nil {
			return out, "", fmt.Errorf("the shell has ended: %w", err)
		}
	}
}

// close ends the shell and waits for that. Nil is none.
func (s *shell) close() error {
	if s == nil {
		return nil
	}
	err := s.in.Close()
	_, readErr := io.Copy(io.Discard, s.out)
	return errors.Join(err, readErr)
}

// onHost is a command in the network namespace of the host.
func (s *rounds) onHost(args ...string) []string {
	return append([]string{"nsenter", "--net=" + s.fleet.Lab.HostNS()}, args...)
}

// traces is what could be left of segments, by where it would be.
func (s *rounds) traces() map[string]string {
	s.t.Helper()
	at := map[string]string{
		"the host's links":         secondWords(mustRun(s.t, s.onHost("ip", "-o", "link")...)),
		"the host's qdiscs":        mustRun(s.t, s.onHost("tc", "qdisc")...),
		"the host's state":         s.stateFiles(),
		"the daemon's descriptors": descriptors(s.t, s.daemonPID()),
	}
	for _, m := range s.in {
		at["links of "+m.Name] = m.run("ls /sys/class/net; ip -o link | grep alias || true")
		at["namespaces of "+m.Name] = m.run("ip netns list")
		at["qdiscs of "+m.Name] = m.run("tc qdisc")
		at["notes of "+m.Name] = m.run("find /run/unnest -path '*pending*' -type f 2>/dev/null || true")
		at["descriptors of "+m.Name] = descriptors(s.t, m.PID)
	}
	return at
}

// secondWords are those of all lines, sorted.
func secondWords(lines string) string {
	var all []string
	for line := range strings.Lines(lines) {
		if fields := strings.Fields(line); len(fields) > 1 {
			all = append(all, fields[1])
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// stateFiles are the names of the lab's files.
func (s *rounds) stateFiles() string {
	s.t.Helper()
	var all []string
	s.check(filepath.WalkDir(s.fleet.Lab.Dir, func(path string, _ fs.DirEntry, err error) error {
		all = append(all, path)
		return err
	}))
	return strings.Join(all, " ")
}

// number is what differs between descriptors of one kind.
var number = regexp.MustCompile(`\d+`)

// descriptors are those of a process, how many of each kind.
func descriptors(t *testing.T, pid int) string {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil { // else it is closed by now
			kinds[number.ReplaceAllString(target, "N")]++
		}
	}
	var all []string
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		all = append(all, fmt.Sprintf("%s: %d", kind, kinds[kind]))
	}
	return strings.Join(all, ", ")
}

// nothingLeft fails unless, soon, the host and all guests are as they were.
func (s *rounds) nothingLeft(t *testing.T, before map[string]string) {
	for begin := time.Now(); ; time.Sleep(time.Second) {
		left := s.left(before)
		if len(left) == 0 {
			return
		}
		if time.Since(begin) > roundPatience {
			t.Errorf("after %v is left:\n%s", roundPatience, strings.Join(left, "\n"))
			return
		}
	}
}

// left says what is not as it was.
func (s *rounds) left(before map[string]string) (left []string) {
	if err := s.settle(); err != nil {
		left = append(left, err.Error())
	}
	now := s.traces()
	for _, where := range slices.Sorted(maps.Keys(before)) {
		if now[where] != before[where] {
			left = append(left, fmt.Sprintf("%s: %q, was %q", where, now[where], before[where]))
		}
	}
	status := s.status()
	for _, segment := range status.Segments {
		left = append(left, fmt.Sprintf("segment %+v", segment))
	}
	for _, g := range status.Guests {
		if g.Error != "" || g.Attachments != 0 || g.SlotsQuarantined != 0 || g.SlotsFree != g.Slots {
			left = append(left, fmt.Sprintf("guest %+v", g))
		}
	}
	return left
}
