package suite

import (
	"time"

	"unnest/internal/measure/result"
)

// tradeBundle has WildFly, the application, JMeter and its plan: see apps/trade.
var tradeBundle = File{Built: "trade.tar", Make: "trade-bundle", Path: "/usr/local/share/unnest/trade.tar"}

// tradeJava are options of Java that depend on the profile.
const tradeJava = `{{.Pick " -XX:TieredStopAtLevel=1" ""}}`

// application returns the case of the paper's suite application, §3.5: a trading application with
// EJB and JPA on WildFly and H2, which JMeter loads. Each run begins with a clean database and a
// dry run as long as the measured one, in the paper's profile 180 s. The paper does not say how
// many users JMeter has; with 16 the processors of a small machine are busy. In the quick profile
// Java has its first compiler only: the second one would compile during the whole run.
func application() []Case {
	return []Case{{
		Suite: "application", Name: "trade", Title: "Trading application on WildFly, loaded by JMeter",
		Package: "default-jre-headless", Tools: []string{"java", "busybox"}, Files: []File{tradeBundle},
		Metrics: []result.Metric{
			{Name: "throughput", Unit: "responses/s", Order: result.HIB, Interval: tradeInterval.Seconds()},
			{Name: "latency_mean", Unit: "us", Order: result.LIB, Interval: tradeInterval.Seconds()},
			{Name: "latency_p50", Unit: "us", Order: result.LIB},
			{Name: "latency_p99", Unit: "us", Order: result.LIB},
			ServerStart,
		},
		Prepare: script("rm -rf trade\ntar -xf " + tradeBundle.Path + "\n"),
		Server: &Server{
			Start: script("exec trade/serve \"$PORT\"" + tradeJava + "\n"),
			Ready: "WFLYSRV0025", Broken: []string{"WFLYSRV0026", "WFLYSRV0056"},
			Versions: "trade/versions",
		},
		Run:       script("exec trade/load \"$ADDRESS\" \"$PORT\" {{.Pick 4 16}} {{.Pick 6 180}} {{.Pick 18 180}}" + tradeJava + "\n"),
		Parse:     readTrade,
		Intervals: tradeIntervals,
		Wall:      wall(100*time.Second, 8*time.Minute),
	}}
}
