//go:build kvm

package e2e

import (
	"encoding/csv"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"unnest/internal/hostd/policy"
	"unnest/internal/measure/stats"
	"unnest/internal/measure/workload"
	"unnest/internal/testbed/fleet"
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
	busy    map[pollCase]float64             // µs of vhost-net's threads
	polls   map[pollCase]float64             // of KVM for work of a guest
	answers map[pollCase]float64
}

// forget forgets what was measured.
func (p *polling) forget() {
	p.trips, p.busy, p.polls, p.answers = map[pollCase][]stats.Observation{}, map[pollCase]float64{}, map[pollCase]float64{}, map[pollCase]float64{}
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
			trip := p.measure(c)
			t.Logf("round %d: %s, halt_poll_ns %s, poll-us %d: %.1f µs", block, c.protocol, c.halt, c.poll.Microseconds(), trip)
			p.trips[c] = append(p.trips[c], stats.Observation{Block: block, Value: trip})
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
	content, err := policy.Marshal(p.fleet.Policy)
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

// measure returns the median round trip of an execution, in µs.
func (p *polling) measure(c pollCase) float64 {
	p.t.Helper()
	p.setHaltPoll(c.halt)
	w, err := workload.Lookup("sockperf")
	p.check(err)
	params := workload.Params{Protocol: c.protocol, Size: 64, Duration: time.Second}
	args := w.Client(params, workload.Endpoint{Address: "127.0.0.1", Port: pollPort})
	polled, busy := p.haltPolls(), p.vhostTicks()
	out, err := w.Parse(params, []byte(p.in[0].run("ip netns exec "+p.name(c.poll)+" "+strings.Join(args, " "))))
	p.check(err)
	p.busy[c] += (p.vhostTicks() - busy) * 1e4 // a tick is 10 ms
	p.polls[c] += float64(p.haltPolls() - polled)
	values := map[string]float64{}
	for _, v := range out.Values {
		values[v.Metric] = v.Value
	}
	p.answers[c] += values["transaction_rate"] * params.Duration.Seconds()
	return values["latency_p50"]
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

// report prints a table, and publishes it if asked to. Ratios are to the first time of polling
// with the usual halt_poll_ns. All are judged together.
func (p *polling) report() {
	p.t.Helper()
	effects, ps := map[pollCase]stats.Effect{}, []float64{}
	for _, c := range p.cases {
		if base := (pollCase{c.protocol, p.usual, pollTimes[0]}); c != base {
			e, err := stats.Compare(p.trips[c], p.trips[base], true)
			p.check(err)
			effects[c] = e
			ps = append(ps, e.P())
		}
	}
	family := stats.Judge(ps, stats.DefaultAlpha)
	var table, csvOut strings.Builder
	rows := csv.NewWriter(&csvOut)
	p.check(rows.Write([]string{"protocol", "halt_poll_ns", "poll_us", "round", "median round trip, us"}))
	pollRow(&table, "", "halt_poll_ns", "poll-us", "median round trip, µs", "ratio", "verdict", "vhost-net, µs of processor", "polls of KVM")
	pollRow(&table, "---", "---:", "---:", "---:", "---:", "---", "---:", "---:")
	for _, c := range p.cases {
		pollRow(&table, strings.ToUpper(string(c.protocol)), c.halt, fmt.Sprint(c.poll.Microseconds()), p.estimate(c),
			ratioText(effects, c, family), verdictText(effects, c, family), fmt.Sprintf("%.0f", p.busy[c]/p.answers[c]), fmt.Sprintf("%.2f", p.polls[c]/p.answers[c]))
		for _, o := range p.trips[c] {
			p.check(rows.Write([]string{string(c.protocol), c.halt, fmt.Sprint(c.poll.Microseconds()), fmt.Sprint(o.Block), strconv.FormatFloat(o.Value, 'g', -1, 64)}))
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
	page := fmt.Sprintf(pollPage, filepath.Base(name), family.Found, family.Tests, time.Now().UTC().Format(time.DateOnly), strings.TrimSpace(string(kernel)),
		*pollBlocks, strings.TrimSpace(table.String()), 100*family.Confidence())
	p.check(os.WriteFile(*pollReport, []byte(page), 0o644))
	p.check(os.WriteFile(name+".csv", []byte(csvOut.String()), 0o644))
}

func pollRow(out *strings.Builder, cells ...string) {
	fmt.Fprintf(out, "| %s |\n", strings.Join(cells, " | "))
}

// estimate returns the geometric mean of a case's medians with its interval.
func (p *polling) estimate(c pollCase) string {
	p.t.Helper()
	xs := stats.Values(p.trips[c])
	s, err := stats.Summarize(xs)
	p.check(err)
	i, err := stats.CenterInterval(xs, stats.DefaultConfidence)
	if err != nil { // one round
		return fmt.Sprintf("%.0f", s.Center)
	}
	return fmt.Sprintf("%.0f [%.0f, %.0f]", s.Center, i.Low, i.High)
}

func ratioText(effects map[pollCase]stats.Effect, c pollCase, f stats.Family) string {
	e, ok := effects[c]
	if !ok {
		return "1"
	}
	i := e.Interval(f.Confidence())
	if !i.Defined() {
		return fmt.Sprintf("%.2f", e.Ratio())
	}
	return fmt.Sprintf("%.2f [%.2f, %.2f]", e.Ratio(), i.Low, i.High)
}

func verdictText(effects map[pollCase]stats.Effect, c pollCase, f stats.Family) string {
	e, ok := effects[c]
	if !ok {
		return "baseline"
	}
	_, v := e.Judge(f, stats.DefaultMargin, false)
	return string(v)
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

// pollPage takes the name of the CSV file, the comparisons with a difference and all, date, kernel,
// rounds, the table and the confidence of the ratios.
const pollPage = `# Polling by vhost-net and KVM

This page is for operators who think of the option ` + "`vhostPoll`" + ` ([BrFusion](../brfusion.md#polling),
[Hostlo](../hostlo.md#polling)). It says what the option did to round trips on a host with KVM that was itself emulated, and
what that can and cannot tell. ` + "`make bench-poll`" + ` measures again and writes this page. [Every round](%[1]s.csv) is kept.

**Result.** %[2]d of %[3]d settings differ from the usual one, in which vhost-net does not poll and KVM's ` + "`halt_poll_ns`" + ` is the
kernel's. The table says which, and in which direction. **These figures are of an emulated host. They do not say
what polling gains on a real one**: measure there, by ` + "`unnest bench poll`" + `.

| what distorts | how |
|---|---|
| QEMU emulates the host's two processors, and their virtualization, in software (TCG) | An exit of a guest costs tens of times what it costs on hardware, next to everything else. What polling saves is a wakeup and an exit, so the share that it can save is another one |
| The host has two processors for two guests, the threads of vhost-net, and the client | A thread that polls takes the processor from a guest that has work. vhost-net stops polling when another thread wants the processor, so with less to run, polls would be longer |
| Other work shares the two real processors | Both emulated processors stand still at times. The order of the settings is random in each round, so that this meets all alike |

Median round trips of 64 B, one at a time for 1 s, by sockperf between two fractions of a pod (Hostlo), one vCPU each, %[4]s, kernel
%[5]s in both guests and their host, %[6]d rounds. The fractions of each setting are in the same two guests; KVM's setting changes between
executions. Values are geometric means over the rounds with 95 %% intervals. The ratios are to the first row of the
protocol with the usual setting, in the same round, by [the rule of all reports](../explanation/statistics.md), with %.1[8]f %%
intervals. The last columns are the time of vhost-net's threads of both guests, and how often KVM has polled for either guest, for
a round trip. KVM polls for guests whose last pauses were shorter than halt_poll_ns. A kernel that polls in spite of 0 has read the parameter when
the guests started.

%[7]s
`
