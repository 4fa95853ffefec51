//go:build profile

package e2e

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/testbed/fleet"
	"unnest.io/unnest/internal/testbed/guest"
	"unnest.io/unnest/internal/testbed/place"
)

// profileReport is the page of the profile. The values of all rounds go into a CSV file of the
// same name.
var profileReport = flag.String("profile-report", "", "file for the tables of TestHostloProfile, in Markdown")

const (
	messageSize = 1024 // bytes
	warmup      = 60   // messages
	blocks      = 12   // rounds
	messages    = 600  // per round
)

// testdata/hops documents hopRequest and hopReply.
type hopRequest struct {
	Do      string   `json:"do"`
	Address string   `json:"address,omitempty"`
	Size    int      `json:"size,omitempty"`
	Warmup  int      `json:"warmup,omitempty"`
	Count   int      `json:"count,omitempty"`
	Links   []string `json:"links,omitempty"`
}

type hopReply struct {
	Error string
	Times map[string][]int64
	Costs map[string]programCost
}

type programCost struct {
	Runs uint64
	Ns   int64
}

func (h *hopper) do(t *testing.T, o hopRequest) hopReply {
	t.Helper()
	var r hopReply
	err := json.NewEncoder(h.in).Encode(o)
	if err == nil {
		err = h.out.Decode(&r)
	}
	if err == nil && r.Error != "" {
		err = errors.New(r.Error)
	}
	if err != nil {
		t.Fatalf("hops in %s: %v: %s", h.name, err, h.problem)
	}
	return r
}

// startHopper starts hops at a place. It ends with the test.
func startHopper(t *testing.T, at place.Place, name string, links []string, args ...string) *hopper {
	t.Helper()
	requests, in := io.Pipe()
	out, answers := io.Pipe()
	h := &hopper{name: name, in: in, out: json.NewDecoder(out), links: links, problem: &bytes.Buffer{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	p, err := at.Start(ctx, place.Command{
		Args: args, Stdin: requests, Stdout: answers, Stderr: h.problem,
		Env: []string{"GODEBUG=asyncpreemptoff=1"}, // no signals to the thread that waits for messages
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- p.Wait()
		answers.Close()
	}()
	t.Cleanup(func() {
		in.Close()
		if err := <-ended; err != nil {
			t.Errorf("hops in %s: %v", name, err)
		}
		cancel()
	})
	return h
}

// hops starts hops in a network namespace of a guest; "": that of the guest.
func (m *node) hops(container string, links ...string) *hopper {
	m.nodes.t.Helper()
	args := []string{"/usr/local/bin/hops"}
	if container != "" {
		args = append([]string{"ip", "netns", "exec", container}, args...)
	}
	return startHopper(m.nodes.t, m.ssh, m.Name+" "+container, links, args...)
}

// way is a path of messages from a client to a server and back.
type way struct {
	name           string
	client, server *hopper
	address        string // of the server, for the client
	waypoints      []waypoint
	// Only the round trips of a variant are measured, between prepare and undo.
	variant       bool
	prepare, undo func()
	results       wayResults
}

// wayResults has one value per round.
type wayResults struct {
	trips   []stats.Observation // µs, without recording other times
	stamped []float64           // µs, while all times are recorded
	parts   map[string][]float64
	threads map[string][]float64 // work of QEMU's threads per message, by its kind
	costs   map[string][]float64 // of each eBPF program, by quantity
}

// hoppers returns the hoppers that record times of the way.
func (w *way) hoppers() (all []*hopper) {
	for _, s := range w.waypoints {
		if !slices.Contains(all, s.by) {
			all = append(all, s.by)
		}
	}
	return all
}

// ask sends messages and returns all recorded times.
func (w *way) ask(t *testing.T, count int, stamped bool) map[*hopper]map[string][]int64 {
	t.Helper()
	watched := map[string]bool{} // the two hoppers of SameNode share a namespace
	for _, h := range w.hoppers() {
		if stamped && !watched[h.name] {
			h.do(t, hopRequest{Do: "stamp", Links: h.links})
			watched[h.name] = true
		}
	}
	w.client.do(t, hopRequest{Do: "ask", Address: w.address, Size: messageSize, Warmup: warmup, Count: count})
	times := map[*hopper]map[string][]int64{}
	for _, h := range w.hoppers() {
		times[h] = h.do(t, hopRequest{Do: "collect"}).Times
	}
	return times
}

// profile compares ways.
type profile struct {
	*nodes
	host  *hopper
	in    []*node
	ways  []*way
	size  int // messages per round
	block int
}

// measure measures a way in one round: first its round trips and the work of QEMU's threads,
// then its parts, then the cost of eBPF programs.
func (p *profile) measure(t *testing.T, w *way) {
	t.Helper()
	w.prepare()
	p.measureTrips(t, w)
	w.undo()
	if w.variant {
		return
	}
	parts, err := meanTrip(w.waypoints, w.ask(t, p.size, true))
	if err != nil {
		t.Fatalf("%s: %v", w.name, err)
	}
	if parts.of < p.size*9/10 {
		t.Errorf("%s: %d of %d messages have all times", w.name, parts.of, p.size)
	}
	w.results.stamped = append(w.results.stamped, parts.all)
	for name, us := range parts.parts {
		add(&w.results.parts, name, us)
	}
	p.count(t, w)
}

func (p *profile) measureTrips(t *testing.T, w *way) {
	t.Helper()
	before := p.threadTimes(t)
	times := w.ask(t, p.size, false)[w.client]
	after := p.threadTimes(t)
	var trips []float64
	for i, sent := range times["sent"] {
		trips = append(trips, float64(times["answered"][i]-sent)/1000)
	}
	w.results.trips = append(w.results.trips, stats.Observation{Block: p.block, Value: middleMean(trips)})
	for what, n := range after {
		add(&w.results.threads, what, (n-before[what])/float64(p.size+warmup))
	}
}

func add(to *map[string][]float64, what string, value float64) {
	if *to == nil {
		*to = map[string][]float64{}
	}
	(*to)[what] = append((*to)[what], value)
}

// count measures the cost of eBPF programs with the statistics of the kernels.
func (p *profile) count(t *testing.T, w *way) {
	t.Helper()
	before := map[*hopper]hopReply{}
	kernels := map[string]*hopper{"host": p.host}
	for _, m := range p.in {
		for _, h := range []*hopper{w.client, w.server} {
			if strings.HasPrefix(h.name, m.Name+" ") {
				kernels[m.Name] = h
			}
		}
	}
	for _, h := range kernels {
		before[h] = h.do(t, hopRequest{Do: "cost", Count: 1})
	}
	w.ask(t, p.size, false)
	for _, h := range kernels {
		for name, c := range h.do(t, hopRequest{Do: "cost"}).Costs {
			runs := c.Runs - before[h].Costs[name].Runs
			if runs < uint64(p.size) { // not caused by the messages
				continue
			}
			where := "guests"
			if h == p.host {
				where = "host"
			}
			key := fmt.Sprintf("%s: %s", where, name)
			add(&w.results.costs, key+", µs a run", float64(c.Ns-before[h].Costs[name].Ns)/float64(runs)/1000)
			add(&w.results.costs, key+", runs", float64(runs)/float64(p.size+warmup))
		}
	}
}

// The work of QEMU's threads from /proc/PID/task/TID/schedstat: the time running and the time
// waiting for a processor, in ns, and the number of time slices (see
// Documentation/scheduler/sched-stats.rst in the kernel). The main loop emulates devices; most
// other threads are vCPUs.
const (
	loopRuns, loopWaits, loopTurns = "main loops run, µs", "wait for a processor, µs", "get one, times"
	vcpuRuns, vcpuWaits, vcpuTurns = "vCPUs run, µs", "wait, µs", "get one, times "
)

var threadWork = []string{loopRuns, loopWaits, loopTurns, vcpuRuns, vcpuWaits, vcpuTurns}

// threadTimes returns the sums over both guests since their start.
func (p *profile) threadTimes(t *testing.T) map[string]float64 {
	t.Helper()
	sum := map[string]float64{}
	for _, m := range p.in {
		paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", m.PID))
		if err != nil || len(paths) == 0 {
			t.Fatalf("threads of %s: %v", m.Name, err)
		}
		for _, path := range paths {
			var ran, waited, turns float64
			content, err := os.ReadFile(path)
			if err == nil {
				_, err = fmt.Sscan(string(content), &ran, &waited, &turns)
			}
			if err != nil {
				continue // the thread has ended
			}
			runs, waits, gets := vcpuRuns, vcpuWaits, vcpuTurns
			if filepath.Base(filepath.Dir(path)) == strconv.Itoa(m.PID) {
				runs, waits, gets = loopRuns, loopWaits, loopTurns
			}
			sum[runs] += ran / 1000
			sum[waits] += waited / 1000
			sum[gets] += turns
		}
	}
	return sum
}

// The ways between two guests: two fractions, and without a pod.
const (
	hostloWay = "Hostlo"
	bridgeWay = "guest to guest"
)

// single is a network namespace that is not a fraction.
const single = "single"

// TestHostloProfile measures the parts of a round trip, between fractions of a pod and between
// guests without a pod, and the effect of changed settings.
func TestHostloProfile(t *testing.T) {
	n := newNodes(t, nil)
	p := &profile{nodes: n, size: messages}
	p.in = n.bootAll(2, fleet.Options{Slots: 8, Memory: 768 << 20})
	hops := goBuild(t, "hops", "build", "-ldflags", "-s -w", "./testdata/hops")
	content, err := os.ReadFile(hops)
	n.check(err)
	for _, m := range p.in {
		n.check(m.ssh.Put(t.Context(), "/usr/local/bin/hops", 0o755, bytes.NewReader(content)))
		m.fraction(podName, podSegment)
	}
	p.in[0].run("ip netns add " + single + " && ip -n " + single + " link set lo up")
	p.host = startHopper(t, place.Local{NetNS: n.fleet.Lab.HostNS()}, "host", []string{p.tap(podName), "g1tenant", "g2tenant"}, hops)
	p.addWays()
	p.addVariants()
	for _, w := range p.ways {
		w.ask(t, messages/4, false)
	}
	for p.block = range blocks {
		for _, i := range rand.Perm(len(p.ways)) {
			p.measure(t, p.ways[i])
		}
	}
	p.report(t)
}

// tap returns the TAP of a pod's segment.
func (p *profile) tap(pod string) string {
	p.t.Helper()
	for _, s := range p.status().Segments {
		if s.Pod == pod {
			return s.TAP
		}
	}
	p.t.Fatalf("the host daemon has no segment of pod %s", pod)
	return ""
}

func (p *profile) addWays() {
	one, two := p.in[0], p.in[1]
	a, b := one.hops(single, "lo"), one.hops(single, "lo")
	p.add(&way{name: "SameNode", client: a, server: b, address: "127.0.0.1:9001", waypoints: throughLoopback(a, b)})
	a, b = one.hops(podName, "lo", "eth0"), one.hops(podName, "lo", "eth0")
	p.add(&way{name: "within a fraction", client: a, server: b, address: "127.0.0.1:9001", waypoints: throughLoopback(a, b)})
	tap := p.tap(podName)
	b = two.hops(podName, "lo", "eth0")
	p.add(&way{name: hostloWay, client: a, server: b, address: "127.0.0.1:9002", waypoints: acrossGuests(a, b, p.host, tap, tap, true)})
	a, b = one.hops("", "eth0"), two.hops("", "eth0")
	p.add(&way{name: bridgeWay, client: a, server: b, address: two.TenantIP + ":9003",
		waypoints: acrossGuests(a, b, p.host, "g1tenant", "g2tenant", false)})
	p.add(&way{name: "host to guest", client: p.host, server: b, address: two.TenantIP + ":9003",
		waypoints: intoGuest(p.host, b, "g2tenant")})
}

// add adds a way and starts its server.
func (p *profile) add(w *way) {
	p.t.Helper()
	if w.prepare == nil {
		w.prepare, w.undo = func() {}, func() {}
	}
	for _, other := range p.ways {
		if other.server == w.server && other.address == w.address {
			p.ways = append(p.ways, w)
			return
		}
	}
	w.server.do(p.t, hopRequest{Do: "serve", Address: w.address})
	p.ways = append(p.ways, w)
}

// throughLoopback returns the waypoints within one network namespace. The client records the
// times on its links.
func throughLoopback(client, server *hopper) []waypoint {
	return []waypoint{
		{client, "sent", ""},
		{client, "lo out request", toDevice},
		{client, "lo in request", throughLo},
		{server, "served", toSocket},
		{client, "lo out answer", toDevice},
		{client, "lo in answer", throughLo},
		{client, "answered", toSocket},
	}
}

// acrossGuests returns the waypoints over NICs and TAPs. With a reflector both TAPs are the same.
// If lo is true, messages also pass lo in the guests.
func acrossGuests(client, server, host *hopper, near, far string, lo bool) (all []waypoint) {
	enter := func(h *hopper, kind, end string) {
		all = append(all, waypoint{h, "eth0 in " + kind, acrossVirt})
		if lo {
			all = append(all, waypoint{h, "lo in " + kind, throughLo})
		}
		all = append(all, waypoint{h, end, toSocket})
	}
	all = append(all,
		waypoint{client, "sent", ""},
		waypoint{client, "eth0 out request", toDevice},
		waypoint{host, near + " in request", acrossVirt},
		waypoint{host, far + " out request", onHost})
	enter(server, "request", "served")
	all = append(all,
		waypoint{server, "eth0 out answer", toDevice},
		waypoint{host, far + " in answer", acrossVirt},
		waypoint{host, near + " out answer", onHost})
	enter(client, "answer", "answered")
	return all
}

// intoGuest returns the waypoints from the host to a guest.
func intoGuest(host, server *hopper, tap string) []waypoint {
	return []waypoint{
		{host, "sent", ""},
		{host, tap + " out request", onHost},
		{server, "eth0 in request", acrossVirt},
		{server, "served", toSocket},
		{server, "eth0 out answer", toDevice},
		{host, tap + " in answer", acrossVirt},
		{host, "answered", onHost},
	}
}

// report prints tables with geometric means over the rounds and their intervals, and publishes
// them if asked to.
func (p *profile) report(t *testing.T) {
	t.Helper()
	var out strings.Builder
	p.reportTrips(t, &out)
	p.reportParts(t, &out)
	p.reportThreads(t, &out)
	p.reportPrograms(t, &out)
	p.reportFrames(&out)
	t.Log("\n" + out.String())
	if *profileReport == "" {
		return
	}
	name, _ := strings.CutSuffix(*profileReport, ".md")
	choice, err := guest.ChooseAccel(guest.AccelAuto)
	p.check(err)
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	p.check(err)
	of := func(name string) *way {
		return p.ways[slices.IndexFunc(p.ways, func(w *way) bool { return w.name == name })]
	}
	content := fmt.Sprintf(profilePage, filepath.Base(name), p.ratio(of(hostloWay), p.ways[0]), p.ratio(of(bridgeWay), p.ways[0]),
		time.Now().UTC().Format(time.DateOnly), strings.TrimSpace(string(kernel)), runtime.NumCPU(), choice.Accel, strings.TrimSpace(out.String()))
	p.check(os.WriteFile(*profileReport, []byte(content), 0o644))
	p.check(os.WriteFile(name+".csv", p.rounds(t), 0o644))
}

// profilePage takes the name of the CSV file, the ratios of Hostlo and of two guests without it
// to one guest, date, kernel, processors, accelerator, and the tables.
const profilePage = `# Where the time of a Hostlo round trip goes

**Result.** A round trip takes %[2]s times as long with Hostlo as within one VM (SameNode). Between two guests
that are only connected by a bridge, without Hostlo, it is %[3]s times.

<!-- begin chart column 3 Round trip over that of SameNode, with 95 %% interval -->


<!-- end chart -->

This page is for readers who want to know why a message between two fractions of a pod takes longer than
within one VM, and what shortens it. ` + "`make e2e TEST=TestHostloProfile ARGS='-profile-report ../../docs/results/hostlo-latency.md'`" + ` measures it in about four minutes and writes this
page. [Every round](%[1]s.csv) is kept.

UDP, one message at a time, two guests of one vCPU, %[4]s, kernel %[5]s on %[6]d processors, accelerator %[7]s.
Values are means of the middle half of the messages of a round: their geometric mean over the rounds, with its
95 %% interval. Ratios are those of [the rule of all reports](../explanation/statistics.md), at 95 %% for each
pair alone. Both guests and both directions are added up, so that differences between their clocks cancel out.
SameNode is a network namespace of one guest. A row of the first table with a setting in its name is the same
way with that setting, in the same rounds.

%[8]s
`

// rounds returns the values of all rounds as CSV.
func (p *profile) rounds(t *testing.T) []byte {
	t.Helper()
	rows := [][]string{{"way", "quantity", "round", "value"}}
	add := func(way, quantity string, round int, value float64) {
		rows = append(rows, []string{way, quantity, strconv.Itoa(round), strconv.FormatFloat(value, 'g', -1, 64)})
	}
	for _, w := range p.ways {
		for _, trip := range w.results.trips {
			add(w.name, "round trip, µs", trip.Block, trip.Value)
		}
		series := map[string][]float64{"round trip with all times recorded, µs": w.results.stamped}
		for _, group := range []map[string][]float64{w.results.parts, w.results.threads, w.results.costs} {
			maps.Copy(series, group)
		}
		for _, quantity := range slices.Sorted(maps.Keys(series)) {
			for round, value := range series[quantity] {
				add(w.name, quantity, round, value)
			}
		}
	}
	var out bytes.Buffer
	p.check(csv.NewWriter(&out).WriteAll(rows))
	return out.Bytes()
}

func (p *profile) reportTrips(t *testing.T, out io.Writer) {
	t.Helper()
	base, hostlo := p.ways[0], p.ways[slices.IndexFunc(p.ways, func(w *way) bool { return w.name == hostloWay })]
	_, _ = fmt.Fprintf(out, "%d rounds of %d messages of %d B\n\n", len(base.results.trips), p.size, messageSize)
	row(out, "", "round trip, µs", "ratio to "+base.name, "ratio to "+hostlo.name, "µs with all times recorded")
	row(out, slices.Repeat([]string{"---"}, 5)...)
	for _, w := range p.ways {
		stamped := ""
		if !w.variant {
			stamped = estimate(t, w.results.stamped)
		}
		row(out, w.name, estimate(t, stats.Values(w.results.trips)), p.ratio(w, base), p.ratio(w, hostlo), stamped)
	}
}

// row prints a row of a table.
func row(out io.Writer, cells ...string) {
	_, _ = fmt.Fprintf(out, "| %s |\n", strings.Join(cells, " | "))
}

// ratio returns the ratio of round trips with its interval over blocks, as text.
func (p *profile) ratio(w, to *way) string {
	p.t.Helper()
	r, err := stats.Compare(w.results.trips, to.results.trips, true)
	p.check(err)
	i := r.Interval(stats.DefaultConfidence)
	if !i.Defined() {
		return fmt.Sprintf("%.2f", r.Ratio())
	}
	return fmt.Sprintf("%.2f [%.2f, %.2f]", r.Ratio(), i.Low, i.High)
}

func (p *profile) reportParts(t *testing.T, out io.Writer) {
	t.Helper()
	main := slices.DeleteFunc(slices.Clone(p.ways), func(w *way) bool { return w.variant })
	head := []string{"part, µs"}
	for _, w := range main {
		head = append(head, w.name)
	}
	_, _ = fmt.Fprintln(out)
	row(out, head...)
	row(out, slices.Repeat([]string{"---"}, len(head))...)
	for _, name := range allParts {
		cells := []string{name}
		for _, w := range main {
			xs, cell := w.results.parts[name], ""
			if len(xs) > 0 {
				cell = estimate(t, xs)
				if slices.Min(xs) <= 0 {
					t.Errorf("%s: %s takes %v µs", w.name, name, slices.Min(xs))
				}
			}
			cells = append(cells, cell)
		}
		row(out, cells...)
	}
}

// reportThreads prints the work of the QEMUs of both guests per message.
func (p *profile) reportThreads(t *testing.T, out io.Writer) {
	t.Helper()
	_, _ = fmt.Fprintln(out)
	row(out, append([]string{"QEMU, for a round trip"}, threadWork...)...)
	row(out, slices.Repeat([]string{"---"}, len(threadWork)+1)...)
	for _, w := range p.ways {
		cells := []string{w.name}
		for _, what := range threadWork {
			cells = append(cells, estimate(t, w.results.threads[what]))
		}
		row(out, cells...)
	}
}

func (p *profile) reportPrograms(t *testing.T, out io.Writer) {
	t.Helper()
	_, _ = fmt.Fprintln(out)
	row(out, "eBPF programs", "")
	row(out, "---", "---")
	for _, w := range p.ways {
		for _, name := range slices.Sorted(maps.Keys(w.results.costs)) {
			row(out, w.name+", "+name, estimate(t, w.results.costs[name]))
		}
	}
}

// reportFrames prints the number of frames and of broadcasts.
func (p *profile) reportFrames(out io.Writer) {
	for _, s := range p.status().Segments {
		for f, c := range s.Counts {
			if c.Frames > 0 {
				_, _ = fmt.Fprintf(out, "\npod %s: fraction %d has sent %d frames, %d of them broadcasts", s.Pod, f, c.Frames, c.Broadcast)
			}
		}
	}
}

// estimate returns the geometric mean of values with its interval, as text.
func estimate(t *testing.T, xs []float64) string {
	t.Helper()
	s, err := stats.Summarize(xs)
	if err != nil {
		t.Fatal(err)
	}
	interval, err := stats.CenterInterval(xs, stats.DefaultConfidence)
	if err != nil {
		return fmt.Sprintf("%.1f", s.Center)
	}
	return fmt.Sprintf("%.1f [%.1f, %.1f]", s.Center, interval.Low, interval.High)
}
