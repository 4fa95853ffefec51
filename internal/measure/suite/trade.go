package suite

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"unnest.io/unnest/internal/measure/workload"
)

// tradeInterval is the length of an interval, §3.5.
const tradeInterval = 6 * time.Second

// tradeRun is the output of apps/trade's load: a line with the durations, JMeter's results, and the
// state of the database after them.
type tradeRun struct {
	dry, measured time.Duration
	requests      []request
	ledger        map[string]string
}

// request is a line of JMeter's results whose answer was the right one.
type request struct {
	label string
	begin time.Duration // since the epoch
	took  time.Duration
}

func (r request) end() time.Duration { return r.begin + r.took }

// What the output has besides figures.
const (
	tradeDurations = "unnest dry %d measured %d\n"
	tradeLedger    = "\nunnest ledger\n"
	tradeSetup     = "setup" // the label of a request before the load
	tradeColumns   = "timeStamp,elapsed,label,responseCode,success,failureMessage"
)

// readTrade returns the figures of a load without errors, after which the database balances.
func readTrade(output []byte) ([]workload.Value, error) {
	t, err := parseTrade(output)
	if err != nil {
		return nil, fmt.Errorf("read the load of the application: %w", err)
	}
	if err := t.check(); err != nil {
		return nil, err
	}
	took := t.latencies(0, t.measured)
	values := []workload.Value{
		{Metric: "throughput", Value: float64(len(took)) / t.measured.Seconds()},
		{Metric: "latency_mean", Value: mean(took)},
		{Metric: "latency_p50", Value: took[len(took)/2]},
	}
	if n := len(took); n >= tailRequests {
		values = append(values, workload.Value{Metric: "latency_p99", Value: took[n*99/100]})
	}
	return values, nil
}

// tailRequests is how many requests it takes for a 99th percentile.
const tailRequests = 1000

// tradeIntervals returns the throughput and the mean latency in each interval. An interval without
// an answer has latency 0.
func tradeIntervals(output []byte) map[string][]float64 {
	t, err := parseTrade(output)
	if err != nil {
		return nil
	}
	rates, latencies := []float64{}, []float64{}
	for from := time.Duration(0); from+tradeInterval <= t.measured; from += tradeInterval {
		took := t.latencies(from, from+tradeInterval)
		rates, latencies = append(rates, float64(len(took))/tradeInterval.Seconds()), append(latencies, mean(took))
	}
	return map[string][]float64{"throughput": rates, "latency_mean": latencies}
}

// latencies returns in µs, sorted, what the requests took that were answered in a part of the
// measured time.
func (t tradeRun) latencies(from, to time.Duration) (took []float64) {
	begin := t.begin() + t.dry
	for _, r := range t.requests {
		if at := r.end() - begin; from <= at && at < to {
			took = append(took, float64(r.took)/float64(time.Microsecond))
		}
	}
	slices.Sort(took)
	return took
}

// begin is when the load began.
func (t tradeRun) begin() time.Duration {
	first := t.requests[0].begin
	for _, r := range t.requests {
		first = min(first, r.begin)
	}
	return first
}

// check returns an error unless the load lasted and the database has what it did.
func (t tradeRun) check() error {
	var last time.Duration
	buys, sells := int64(0), int64(0)
	for _, r := range t.requests {
		last = max(last, r.end())
		switch r.label {
		case "buy":
			buys++
		case "sell":
			sells++
		}
	}
	if lasted := last - t.begin(); lasted < t.dry+t.measured {
		return fmt.Errorf("JMeter ended after %.1f s, want %s", lasted.Seconds(), t.dry+t.measured)
	}
	if len(t.latencies(0, t.measured)) == 0 {
		return fmt.Errorf("no answer in the measured %s", t.measured)
	}
	if err := checkLedger(t.ledger, buys, sells); err != nil {
		return fmt.Errorf("the database does not balance: %w", err)
	}
	return nil
}

// checkLedger checks the database of the application: no account, holding or order is wrong, it has
// the orders that JMeter saw and no other, and the cash is what the orders leave.
func checkLedger(ledger map[string]string, buys, sells int64) error {
	cents := map[string]int64{}
	for _, name := range []string{"opening", "cash", "bought", "sold", "fees"} {
		amount, err := parseCents(ledger[name])
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		cents[name] = amount
	}
	counts := map[string]int64{}
	for _, name := range []string{"holdings", "seeded", "buys", "sells", "wrong_accounts", "wrong_holdings", "wrong_orders"} {
		n, err := strconv.ParseInt(ledger[name], 10, 64)
		if err != nil {
			return fmt.Errorf("%s is %q: want a whole number", name, ledger[name])
		}
		counts[name] = n
	}
	for _, want := range []struct {
		what  string
		got   int64
		exact int64
	}{
		{"accounts with wrong cash", counts["wrong_accounts"], 0},
		{"accounts with wrong holdings", counts["wrong_holdings"], 0},
		{"holdings without their order", counts["wrong_orders"], 0},
		{"buys", counts["buys"], buys},
		{"sells", counts["sells"], sells},
		{"holdings", counts["holdings"], counts["seeded"] + buys - sells},
		{"cents of cash", cents["cash"], cents["opening"] - cents["bought"] + cents["sold"] - cents["fees"]},
	} {
		if want.got != want.exact {
			return fmt.Errorf("it has %d %s, want %d", want.got, want.what, want.exact)
		}
	}
	return nil
}

// parseCents parses an amount of money with at most two decimals.
func parseCents(text string) (int64, error) {
	amount, ok := new(big.Rat).SetString(text)
	if ok {
		amount.Mul(amount, big.NewRat(100, 1))
	}
	if !ok || !amount.IsInt() || !amount.Num().IsInt64() {
		return 0, fmt.Errorf("%q is not an amount of money", text)
	}
	return amount.Num().Int64(), nil
}

func parseTrade(output []byte) (t tradeRun, err error) {
	if len(bytes.TrimSpace(output)) == 0 {
		return t, errors.New("no output")
	}
	first, rest, _ := bytes.Cut(output, []byte("\n"))
	const longest = 24 * 60 * 60
	var dry, measured int
	if _, err := fmt.Sscanf(string(first)+"\n", tradeDurations, &dry, &measured); err != nil || dry < 0 || dry > longest || measured <= 0 || measured > longest {
		return t, fmt.Errorf("the first line is %s, want the durations", workload.Quote(first))
	}
	t.dry, t.measured = time.Duration(dry)*time.Second, time.Duration(measured)*time.Second
	results, ledger, ok := bytes.Cut(rest, []byte(tradeLedger))
	if !ok {
		return t, fmt.Errorf("there is no ledger; %w", missing(rest))
	}
	if t.requests, err = parseRequests(results); err != nil {
		return t, err
	}
	t.ledger = map[string]string{}
	for line := range strings.Lines(string(ledger)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		t.ledger[name] = value
	}
	return t, nil
}

// parseRequests parses JMeter's results. Its error says how many answers were wrong, and why the
// first of them was.
func parseRequests(results []byte) (all []request, err error) {
	header, lines, _ := bytes.Cut(results, []byte("\n"))
	if string(bytes.TrimSpace(header)) != tradeColumns {
		return nil, fmt.Errorf("JMeter's columns are %s, want %s", workload.Quote(header), tradeColumns)
	}
	r := csv.NewReader(bytes.NewReader(lines))
	r.FieldsPerRecord, r.ReuseRecord = strings.Count(tradeColumns, ",")+1, true
	const latest = 1e12 * 4 // ms since the epoch, so that no time overflows
	wrong, first := 0, ""
	for {
		fields, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("JMeter's results: %w", err)
		}
		begin, err := strconv.ParseInt(fields[0], 10, 64)
		took, tookErr := strconv.ParseInt(fields[1], 10, 64)
		if err != nil || tookErr != nil || begin <= 0 || begin > latest || took < 0 || took > latest {
			return nil, fmt.Errorf("JMeter's results: %q is no time of a request", fields)
		}
		if fields[2] == tradeSetup && fields[4] == "true" {
			continue
		}
		if fields[4] != "true" {
			if wrong++; wrong == 1 {
				first = fmt.Sprintf("%s, code %s, %s", fields[2], fields[3], workload.Quote([]byte(fields[5])))
			}
		}
		all = append(all, request{strings.Clone(fields[2]), time.Duration(begin) * time.Millisecond, time.Duration(took) * time.Millisecond})
	}
	switch {
	case wrong > 0:
		return nil, fmt.Errorf("%d of %d answers are wrong, the first: %s", wrong, len(all), first)
	case len(all) == 0:
		return nil, errors.New("JMeter sent no request")
	}
	return all, nil
}

// mean returns the mean of values, 0 if there is none.
func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(max(1, len(values)))
}
