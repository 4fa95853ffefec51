package suite

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const goodLedger = `accounts 201
holdings 1001
seeded 1000
buys 2
sells 1
opening 201000000.00
cash 200997925.15
bought 5000.00
sold 3000.00
fees 74.85
wrong_accounts 0
wrong_holdings 0
wrong_orders 0
`

// tradeOutput is the output of a load of 6 s after a dry run of 6 s: a request each 500 ms takes
// 20 ms, in the last interval 40 ms.
func tradeOutput(change ...string) string {
	var b strings.Builder
	b.WriteString("unnest dry 6 measured 12\n" + tradeColumns + "\n")
	b.WriteString("1699999990000,3000,setup,200,true,\n")
	for i := range 37 {
		took, label := 20, "quotes"
		if i >= 24 {
			took = 40
		}
		switch i {
		case 3, 30:
			label = "buy"
		case 31:
			label = "sell"
		}
		fmt.Fprintf(&b, "%d,%d,%s,200,true,\n", 1_700_000_000_000+i*500, took, label)
	}
	b.WriteString(tradeLedger + goodLedger)
	return strings.NewReplacer(change...).Replace(b.String())
}

func TestReadTrade(t *testing.T) {
	values, err := readTrade([]byte(tradeOutput()))
	if err != nil {
		t.Fatal(err)
	}
	want := "[{throughput 2} {latency_mean 30000} {latency_p50 40000}]"
	if got := fmt.Sprint(values); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	intervals := tradeIntervals([]byte(tradeOutput()))
	if got := intervals["throughput"]; !slices.Equal(got, []float64{2, 2}) {
		t.Errorf("throughput in intervals %v, want 2 in each", got)
	}
	if got := intervals["latency_mean"]; !slices.Equal(got, []float64{20000, 40000}) {
		t.Errorf("latency in intervals %v", got)
	}
}

// Each error of the load or of the database is found, and named.
func TestReadTradeRefuses(t *testing.T) {
	failed := `1700000002000,20,quotes,500,false,"Test failed: text expected to contain /<h1>Quotes</h1>/` + "\nand more\""
	for _, tt := range []struct{ old, new, want string }{
		{"unnest dry 6", "dry 6", `the first line is "dry 6 measured 12", want the durations`},
		{"measured 12", "measured 0", "want the durations"},
		{"1700000002000,20,quotes,200,true,", failed, `1 of 37 answers are wrong, the first: quotes, code 500, "Test failed: text expected to contain`},
		{"setup,200,true,", "setup,502,false,Bad Gateway", `1 of 38 answers are wrong, the first: setup, code 502, "Bad Gateway"`},
		{"measured 12", "measured 14", "JMeter ended after 18.0 s, want 20s"},
		{",success,", ",ok,", "JMeter's columns are"},
		{"1700000002000,20,", "now,20,", "is no time of a request"},
		{"1700000002000,20,quotes,200,true,", "1700000002000,20", "JMeter's results: record on line"},
		{"unnest ledger", "", "there is no ledger"},
		{"wrong_accounts 0", "wrong_accounts 2", "it has 2 accounts with wrong cash, want 0"},
		{"wrong_holdings 0", "wrong_holdings 2", "it has 2 accounts with wrong holdings, want 0"},
		{"wrong_orders 0", "wrong_orders 2", "it has 2 holdings without their order, want 0"},
		{"wrong_orders 0\n", "", `wrong_orders is "": want a whole number`},
		{"buys 2", "buys 3", "it has 3 buys, want 2"},
		{"sells 1", "sells 0", "it has 0 sells, want 1"},
		{"holdings 1001", "holdings 1000", "it has 1000 holdings, want 1001"},
		{"fees 74.85", "fees 74.86", "it has 20099792515 cents of cash, want 20099792514"},
		{"fees 74.85", "fees 74.855", `fees: "74.855" is not an amount of money`},
		{"fees 74.85\n", "", `fees: "" is not an amount of money`},
	} {
		output := tradeOutput(tt.old, tt.new)
		_, err := readTrade([]byte(output))
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q instead of %q: got %v, want %q", tt.new, tt.old, err, tt.want)
		}
	}
	if _, err := readTrade(nil); err == nil || !strings.HasSuffix(err.Error(), "no output") {
		t.Errorf("no output: %v", err)
	}
}

// A 99th percentile needs enough requests.
func TestReadTradeTail(t *testing.T) {
	var many strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&many, "%d,%d,home,200,true,\n", 1_700_000_007_000+i, i+1)
	}
	values, err := readTrade([]byte(tradeOutput(tradeColumns+"\n", tradeColumns+"\n"+many.String())))
	if err != nil || len(values) != 4 || values[3].Metric != "latency_p99" || values[3].Value < 900_000 {
		t.Errorf("got %v, %v; want a 99th percentile", values, err)
	}
}

func FuzzReadTrade(f *testing.F) {
	f.Add(tradeOutput())
	f.Add("unnest dry 0 measured 6\n" + tradeColumns + "\n1,1,buy,200,true,\n" + tradeLedger + goodLedger)
	f.Fuzz(func(t *testing.T, output string) {
		values, err := readTrade([]byte(output))
		if err != nil {
			return
		}
		c, _ := lookup("trade")
		checkValues(t, c, values)
		for name, intervals := range tradeIntervals([]byte(output)) {
			for _, v := range intervals {
				if !(v >= 0) {
					t.Errorf("%s has an interval %v", name, v)
				}
			}
		}
	})
}
