//go:build kvm

package e2e

import (
	"cmp"
	"encoding/csv"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/fleet"
)

var (
	pollReport = flag.String("poll-report", "", "file for the page of TestPoll, in Markdown; the values of all rounds go into a CSV file of the same name")
	pollBlocks = flag.Int("poll-blocks", 1, "rounds of TestPoll")
	pollHalt   = flag.Bool("poll-halt", false, "TestPoll sets halt_poll_ns of this machine, which has to be a guest, and restores it")
)

// haltPollFile is a setting of the whole host.
const haltPollFile = "/sys/module/kvm/parameters/halt_poll_ns"

// pollCase is what is measured in each round.
type pollCase struct {
	protocol workload.Protocol
	halt     string        // halt_poll_ns
	poll     time.Duration // of vhost-net
}

// polling has a segment for each time of polling, over the same two guests.
type polling struct {
	*nodes
	in      []*node
	usual   string // halt_poll_ns before the test
	cases   []pollCase
	trips   map[pollCase][]stats.Observation // µs
	vhost   map[pollCase][]stats.Observation // processor time of vhost-net's threads for a round trip, µs
	polls   map[pollCase]float64             // of KVM for work of a guest
	answers map[pollCase]float64
}

// forget forgets what was measured.
func (p *polling) forget() {
	p.trips, p.vhost, p.polls, p.answers = map[pollCase][]stats.Observation{}, map[pollCase][]stats.Observation{}, map[pollCase]float64{}, map[pollCase]float64{}
}

// pollTimes are those of the segments' NICs; the first is the baseline.
var pollTimes = []time.Duration{0, 50 * time.Microsecond, 200 * time.Microsecond}

// TestPoll measures round trips between two fractions: with and without polling by vhost-net,
// and by KVM when a guest has nothing to do. TestOnKVM runs it in a guest that is the host.
func TestPoll(t *testing.T) {
	p := &polling{nodes: newNodes(t, nil)}
	p.forget()
	p.usual = p.haltPoll()
	p.in = p.bootAll(2, fleet.Options{Slots: 4, Memory: 768 << 20})
	halts := []string{p.usual}
	if *pollHalt {
		halts = append(halts, "0")
		t.Cleanup(func() { p.setHaltPoll(p.usual) })
	}
	for _, poll := range pollTimes {
		p.addSegment(poll)
		for _, halt := range halts {
			p.cases = append(p.cases, pollCase{workload.UDP, halt, poll}, pollCase{workload.TCP, halt, poll})
		}
	}
	for _, c := range p.cases[:2] {
		p.measure(c) // for the first packets, which look for the server
	}
	p.forget()
	for block := range *pollBlocks {
		for _, i := range rand.Perm(len(p.cases)) {
			c := p.cases[i]
			m := p.measure(c)
			t.Logf("round %d: %s, halt_poll_ns %s, poll-us %d: %.1f µs, vhost-net %.0f µs", block, c.protocol, c.halt, c.poll.Microseconds(), m.trip, m.vhost)
			p.trips[c] = append(p.trips[c], stats.Observation{Block: block, Value: m.trip})
			p.vhost[c] = append(p.vhost[c], stats.Observation{Block: block, Value: m.vhost})
		}
	}
	p.report()
}

func (p *polling) haltPoll() string {
	p.t.Helper()
	content, err := os.ReadFile(haltPollFile)
	p.check(err)
	return strings.TrimSpace(string(content))
}

func (p *polling) setHaltPoll(ns string) {
	p.t.Helper()
	if p.haltPoll() != ns {
		p.check(os.WriteFile(haltPollFile, []byte(ns), 0))
	}
}

// name is the pod with a time of polling, its segment, and its network namespaces.
func (p *polling) name(poll time.Duration) string {
	return fmt.Sprintf("poll%d", poll.Microseconds())
}

const pollPort = 11111

// addSegment has the daemon plug the endpoints of a pod with a time of polling, and starts the
// pod's servers in the second guest.
func (p *polling) addSegment(poll time.Duration) {
	p.t.Helper()
	p.setVHostPoll(poll)
	name := p.name(poll)
	for _, m := range p.in {
		m.fraction(name, map[string]any{"segment": name, "key": "known-to-the-guests-of-the-pod"})
	}
	server := p.in[1]
	for option, log := range map[string]string{"": "udp", "--tcp": "tcp"} {
		log := fmt.Sprintf("/tmp/%s-%s.log", name, log)
		server.run(fmt.Sprintf("ip netns exec %s setsid sockperf server -i 127.0.0.1 -p %d %s >%s 2>&1 &", name, pollPort, option, log))
		p.eventually("sockperf listens", func() bool { return strings.Contains(server.run("cat "+log), "to block on socket(s)") })
	}
}

// setVHostPoll changes the configuration of the daemon, which follows it, for later NICs.
func (p *polling) setVHostPoll(poll time.Duration) {
	p.t.Helper()
	if p.fleet.Policy.Tenants[0].VHostPoll == poll {
		return
	}
	p.fleet.Policy.Tenants[0].VHostPoll = poll
	content, err := quota.Marshal(p.fleet.Policy)
	p.check(err)
	before := p.status().Configuration.Loaded
	p.check(os.WriteFile(filepath.Join(p.fleet.Lab.Dir, "hostd.yaml"), content, 0o600))
	p.eventually("the daemon has read its configuration", func() bool {
		c := p.status().Configuration
		if c.Error != "" {
			p.t.Fatal(c.Error)
		}
		return c.Loaded.After(before)
	})
}

// pollExecution is what an execution gave: its median round trip, and the processor time of
// vhost-net's threads for a round trip, both in µs.
type pollExecution struct{ trip, vhost float64 }

func (p *polling) measure(c pollCase) pollExecution {
	p.t.Helper()
	p.setHaltPoll(c.halt)
	w, err := workload.Lookup("sockperf")
	p.check(err)
	params := workload.Params{Protocol: c.protocol, Size: 64, Duration: time.Second}
	args := w.Client(params, workload.Endpoint{Address: "127.0.0.1", Port: pollPort})
	polled, busy := p.haltPolls(), p.vhostTicks()
	out, err := w.Parse(params, []byte(p.in[0].run("ip netns exec "+p.name(c.poll)+" "+strings.Join(args, " "))))
	p.check(err)
	busy = (p.vhostTicks() - busy) * 1e4 // a tick is 10 ms
	p.polls[c] += float64(p.haltPolls() - polled)
	values := map[string]float64{}
	for _, v := range out.Values {
		values[v.Metric] = v.Value
	}
	answers := values["transaction_rate"] * params.Duration.Seconds()
	p.answers[c] += answers
	return pollExecution{values["latency_p50"], busy / answers}
}

// haltPolls is how often KVM has polled for work of any guest, which debugfs counts.
func (p *polling) haltPolls() int {
	p.t.Helper()
	content, err := os.ReadFile("/sys/kernel/debug/kvm/halt_attempted_poll")
	p.check(err)
	n, err := strconv.Atoi(strings.TrimSpace(string(content)))
	p.check(err)
	return n
}

// vhostTicks is the processor time of vhost-net's threads for both guests.
func (p *polling) vhostTicks() (sum float64) {
	p.t.Helper()
	for _, m := range p.in {
		for _, ticks := range m.vhostTime(p.t) {
			sum += float64(ticks)
		}
	}
	return sum
}

// pollFamily is a metric of all cases. Its ratios are to the first time of polling with the
// usual halt_poll_ns, and are judged together.
type pollFamily struct {
	values  map[pollCase][]stats.Observation
	effects map[pollCase]stats.Effect
	stats.Family
}

func (p *polling) judge(values map[pollCase][]stats.Observation) pollFamily {
	p.t.Helper()
	f := pollFamily{values: values, effects: map[pollCase]stats.Effect{}}
	ps := []float64{}
	for _, c := range p.cases {
		if base := (pollCase{c.protocol, p.usual, pollTimes[0]}); c != base {
			e, err := stats.Compare(values[c], values[base], true)
			p.check(err)
			f.effects[c] = e
			ps = append(ps, e.P())
		}
	}
	f.Family = stats.Judge(ps, stats.DefaultAlpha)
	return f
}

// ratio returns the ratio of a case with its interval, bold where the interval excludes 1.
func (f pollFamily) ratio(c pollCase) string {
	e, ok := f.effects[c]
	if !ok {
		return "1"
	}
	i, verdict := e.Judge(f.Family, stats.DefaultMargin, false)
	if !i.Defined() {
		return fmt.Sprintf("%.2f", e.Ratio())
	}
	text := fmt.Sprintf("%.2f [%.2f, %.2f]", e.Ratio(), i.Low, i.High)
	switch verdict {
	case stats.Better, stats.Worse:
		return "**" + text + "**"
	case stats.Equal:
		return text + ", equal"
	}
	return text
}

// differing says in how many cases the interval excludes 1, and how large their ratios are.
func (p *polling) differing(f pollFamily) string {
	var found []pollCase
	for _, c := range p.cases {
		e, ok := f.effects[c]
		if !ok {
			continue
		}
		if _, verdict := e.Judge(f.Family, stats.DefaultMargin, false); verdict == stats.Better || verdict == stats.Worse {
			found = append(found, c)
		}
	}
	if found == nil {
		return "in none"
	}
	slices.SortFunc(found, func(a, b pollCase) int { return cmp.Compare(f.effects[a].Ratio(), f.effects[b].Ratio()) })
	text := func(c pollCase) string { return strings.Trim(f.ratio(c), "*") }
	return fmt.Sprintf("in %d: it is %s to %s times as long", len(found), text(found[0]), text(found[len(found)-1]))
}

// report prints a table, and publishes it if asked to.
func (p *polling) report() {
	p.t.Helper()
	trips, vhost := p.judge(p.trips), p.judge(p.vhost)
	var table, csvOut strings.Builder
	rows := csv.NewWriter(&csvOut)
	p.check(rows.Write([]string{"protocol", "halt_poll_ns", "poll_us", "round", "median round trip, us", "vhost-net for a round trip, us"}))
	pollRow(&table, "", "halt_poll_ns", "poll-us", "median round trip, µs", "ratio", "vhost-net, µs of processor", "ratio", "polls of KVM")
	pollRow(&table, "---", "---:", "---:", "---:", "---:", "---:", "---:", "---:")
	for _, c := range p.cases {
		pollRow(&table, strings.ToUpper(string(c.protocol)), c.halt, fmt.Sprint(c.poll.Microseconds()), p.estimate(p.trips[c]), trips.ratio(c),
			p.estimate(p.vhost[c]), vhost.ratio(c), fmt.Sprintf("%.2f", p.polls[c]/p.answers[c]))
		for i, o := range p.trips[c] {
			p.check(rows.Write([]string{
				string(c.protocol), c.halt, fmt.Sprint(c.poll.Microseconds()), fmt.Sprint(o.Block),
				strconv.FormatFloat(o.Value, 'g', -1, 64), strconv.FormatFloat(p.vhost[c][i].Value, 'g', -1, 64),
			}))
		}
	}
	rows.Flush()
	p.t.Log("\n" + table.String())
	if *pollReport == "" {
		return
	}
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	p.check(err)
	name := strings.TrimSuffix(*pollReport, ".md")
	page := fmt.Sprintf(pollPage, filepath.Base(name), p.differing(trips), p.differing(vhost), trips.Tests, time.Now().UTC().Format(time.DateOnly),
		strings.TrimSpace(string(kernel)), *pollBlocks, strings.TrimSpace(table.String()), 100*trips.Confidence(), 100*vhost.Confidence())
	p.check(os.WriteFile(*pollReport, []byte(page), 0o644))
	p.check(os.WriteFile(name+".csv", []byte(csvOut.String()), 0o644))
}

func pollRow(out *strings.Builder, cells ...string) {
	fmt.Fprintf(out, "| %s |\n", strings.Join(cells, " | "))
}

// estimate returns the geometric mean of all rounds with its interval.
func (p *polling) estimate(values []stats.Observation) string {
	p.t.Helper()
	xs := stats.Values(values)
	s, err := stats.Summarize(xs)
	p.check(err)
	i, err := stats.CenterInterval(xs, stats.DefaultConfidence)
	if err != nil { // one round
		return fmt.Sprintf("%.0f", s.Center)
	}
	return fmt.Sprintf("%.0f [%.0f, %.0f]", s.Center, i.Low, i.High)
}

// publishPoll copies the page that TestPoll has written in the guest.
func (m *node) publishPoll(t *testing.T, inGuest string) {
	t.Helper()
	name := strings.TrimSuffix(*pollReport, ".md")
	for from, to := range map[string]string{inGuest + ".md": *pollReport, inGuest + ".csv": name + ".csv"} {
		content := strings.ReplaceAll(m.run("cat "+from), "("+filepath.Base(inGuest)+".csv)", "("+filepath.Base(name)+".csv)")
		m.nodes.check(os.WriteFile(to, []byte(content), 0o644))
	}
}

// pollPage takes the name of the CSV file, the settings with another round trip and with another
// processor time, the number of comparisons, date, kernel, rounds, the table, and the confidence
// of both kinds of ratios.
const pollPage = `# Polling by vhost-net and KVM

**Result.** %[4]d settings were compared with the usual one, in which vhost-net does not poll and KVM's ` + "`halt_poll_ns`" + ` is
the kernel's. The round trip is shown to differ %[2]s. The processor time of vhost-net for a round trip is shown to differ
%[3]s. **These figures are of an emulated host. They do not say what polling gains on a real one**:
measure there, by ` + "`unnest bench poll`" + `.

<!-- begin chart column 7 Processor time of vhost-net for a round trip, over that without polling -->


<!-- end chart -->

This page is for operators who think of the option ` + "`vhostPoll`" + ` ([BrFusion](../brfusion.md#polling),
[Hostlo](../hostlo.md#polling)). It says what the option did to round trips on a host with KVM that was itself emulated, and
what that can and cannot tell. ` + "`make e2e TEST=TestOnKVM UNNEST_ON_KVM=poll ARGS='-poll-blocks 12 -poll-report ../../docs/results/poll.md'`" + ` measures again and writes this page. [Every round](%[1]s.csv) is kept.

| what distorts | how |
|---|---|
| QEMU emulates the host's two processors, and their virtualization, in software (TCG) | An exit of a guest costs tens of times what it costs on hardware, next to everything else. What polling saves is a wakeup and an exit, so the share that it can save is another one |
| The host has two processors for two guests, the threads of vhost-net, and the client | A thread that polls takes the processor from a guest that has work. vhost-net stops polling when another thread wants the processor, so with less to run, polls would be longer |
| Other work shares the two real processors | Both emulated processors stand still at times. The order of the settings is random in each round, so that this meets all alike |

Median round trips of 64 B, one at a time for 1 s, by sockperf between two fractions of a pod (Hostlo), one vCPU each, %[5]s, kernel
%[6]s in both guests and their host, %[7]d rounds. The fractions of each setting are in the same two guests; KVM's setting changes between
executions. The processor time is that of vhost-net's threads of both guests, divided by the round trips. Values are geometric means
over the rounds with 95 %% intervals. Ratios are to the first row of the protocol, in the same round, by
[the rule of all reports](../explanation/statistics.md). The intervals of round trips are at %.1[9]f %%, those of processor times
at %.1[10]f %%, and a ratio is bold where its interval excludes 1. The last column is how often KVM has polled for either guest
for a round trip. KVM polls for guests whose last pauses were shorter than ` + "`halt_poll_ns`" + `. A kernel that polls in spite of 0 has read the
parameter when the guests started.

%[8]s
`
