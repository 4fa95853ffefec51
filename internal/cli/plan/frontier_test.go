package plan

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/rundir"
	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/summary"
)

func frontierOf(t *testing.T, args ...string) summary.Frontier {
	t.Helper()
	var f summary.Frontier
	if !slices.Contains(args, "--links") {
		args = append(args, "--links", "all")
	}
	if err := json.Unmarshal([]byte(must(t, append(args, "--json")...)), &f); err != nil {
		t.Fatal(err)
	}
	return f
}

// By hand: ann saves 0.112 $/h where the container a of the pod big goes away from b
// and c, a cut of 2; dan saves as much where one of three goes away.
func TestFrontier(t *testing.T) {
	f := frontierOf(t, "--trace", "csv:"+file(t, "pods.csv", pods))
	want := []summary.Point{{Cost: dollarsOf(t, "1.008")}, {Price: .056, Cost: dollarsOf(t, "0.784"), Cut: 4, Users: 2}}
	if diff := cmp.Diff(want, f.Total, cmpopts.EquateApprox(1e-9, 0)); diff != "" {
		t.Errorf("total (-want +got):\n%s", diff)
	}
	if f.Users != 3 || f.LeftOut != 1 || f.Links.Pairs != 1 || f.Whole != want[0].Cost || len(f.PerUser) != 4 {
		t.Errorf("got %+v", f)
	}
}

func dollarsOf(t *testing.T, text string) (d summary.Dollars) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// With a file of links, what no row names does not talk.
func TestFrontierLinks(t *testing.T) {
	trace := "csv:" + file(t, "pods.csv", pods)
	links := file(t, "links.csv", "weight,user,pod,a,b,why\n7,ann,big,a,b,x\n3,ann,big,b,c,x\n0.5,dan,three,a,b,x\n1,eve,gone,a,b,x\n")
	f := frontierOf(t, "--trace", trace, "--links", links)
	got := map[string][]summary.Choice{}
	for _, u := range f.PerUser {
		got[u.User] = u.Choices
	}
	want := map[string][]summary.Choice{ // dan's a and b stay together, c goes
		"ann": {{Cost: dollarsOf(t, "0.336"), Cut: 3, Split: 1}, {Cost: dollarsOf(t, "0.448"), Cut: 0, Split: 0}},
		"bob": {{Cost: dollarsOf(t, "0.112"), Cut: 0, Split: 0}},
		"cyd": {},
		"dan": {{Cost: dollarsOf(t, "0.336"), Cut: 0, Split: 1}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("choices (-want +got):\n%s", diff)
	}
	if f.Links.Rows != 4 || f.Links.Unused != 1 {
		t.Errorf("links %+v, want 4 rows, 1 unused", f.Links)
	}
	for content, want := range map[string]string{
		"user,pod,a,b\n":                         "lacks the column weight",
		"user,pod,a,b,weight\nann,big,a,b,-1\n":  `links.csv line 2: weight "-1": want a number from 0`,
		"user,pod,a,b,weight\nann,big,a,b,Inf\n": `want a number from 0`,
		"user,pod,a,b,weight\nann,big,a,z,1\n":   `pod big of user ann has no two containers "a" and "z"`,
		"user,pod,a,b,weight\nann,big,a,a,1\n":   `has no two containers`,
		"user,pod,a,b,weight\nann,Big,a,b,1\n":   `the trace has none of the pods, the first of which is pod "Big" of user "ann"`,
		"user,pod,a,b,weight\nann,big\n":         `links.csv line 2: has 2 columns: want 5, as the header has`,
		"user,pod,a,b,weight\n":                  `has no rows`,
		"":                                       `the first line must name user,pod,a,b,weight`,
	} {
		_, err := execute(t.Context(), t, "--trace", trace, "--links", file(t, "links.csv", content))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", content, err, want)
		}
	}
}

// A pod of kubectl says in an annotation what talks.
func TestFrontierAnnotations(t *testing.T) {
	dump := func(annotation string) string {
		container := func(name string) string {
			return `{"name":"` + name + `","resources":{"requests":{"cpu":"2","memory":"1Gi"}}}`
		}
		return file(t, "pods.json", `{"items":[{"kind":"Pod","metadata":{"name":"web","namespace":"shop","annotations":{"unnest.io/links":"`+annotation+
			`"}},"spec":{"containers":[`+container("a")+","+container("b")+","+container("c")+`]}}]}`)
	}
	f := frontierOf(t, "--trace", "kubectl:"+dump("a:b=5, b:c=0.5"), "--links", "annotations")
	want := []summary.Choice{{Cost: dollarsOf(t, "0.336"), Cut: .5, Split: 1}, {Cost: dollarsOf(t, "0.448"), Cut: 0, Split: 0}}
	if diff := cmp.Diff(want, f.PerUser[0].Choices); diff != "" {
		t.Errorf("choices (-want +got):\n%s", diff)
	}
	for annotation, want := range map[string]string{
		"a:b":      "want A:B=WEIGHT",
		"a:b=-1":   "want A:B=WEIGHT",
		"a:z=1":    "want two containers or sidecars of the pod",
		"a:a=1":    "want two containers or sidecars of the pod",
		"a:b=1;c":  "want A:B=WEIGHT",
		"a:b=NaN":  "want A:B=WEIGHT",
		"a:b=1,,c": "want A:B=WEIGHT",
	} {
		_, err := execute(t.Context(), t, "--trace", "kubectl:"+dump(annotation), "--links", "annotations")
		if err == nil || !strings.Contains(err.Error(), "pods.json item 1: pod web: annotation unnest.io/links: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", annotation, err, want)
		}
	}
}

// latencyRun writes a run of two cases: udp_rr/64 takes twice as long through Hostlo as
// in SameNode, udp_rr/1024 eight times; a third case has no latencies.
func latencyRun(t *testing.T, configurations ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	run := result.Run{ID: "r1", State: result.Complete, Accelerator: "kvm", Started: time.Unix(0, 0)}
	for _, name := range configurations {
		run.Configurations = append(run.Configurations, result.Configuration{Name: name})
	}
	for _, name := range []string{"udp_rr/64", "udp_rr/1024", "tcp_stream"} {
		run.Cases = append(run.Cases, result.Case{Suite: "network", Name: name, Metrics: []result.Metric{{Name: "latency_mean", Unit: "us", Order: result.LIB}}})
	}
	d, err := rundir.Create(dir, run)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	times := map[string]map[string]float64{"udp_rr/64": {"SameNode": 10, "Hostlo": 20}, "udp_rr/1024": {"SameNode": 10, "Hostlo": 80}}
	for block := range 6 {
		for _, name := range configurations {
			for kase, of := range times {
				s := result.Sample{Run: "r1", Configuration: name, Suite: "network", Case: kase, Metric: "latency_mean", Unit: "us", Order: result.LIB,
					Value: of[name] * (1 + float64(block)/100), Block: block, Repetition: block}
				if err := d.Append([]result.Sample{s}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return dir
}

// The ratio is 2 and 8, so 4; a link of weight 1 takes 3 × 0.5 vCPU more when it is
// cut, at 0.056 $ each.
func TestCutPrice(t *testing.T) {
	trace, dir := "csv:"+file(t, "pods.csv", pods), latencyRun(t, "SameNode", "Hostlo", "NAT")
	f := frontierOf(t, "--trace", trace, "--hostlo-run", dir+",link-cpu=0.5")
	if p := f.Price; p == nil || !near(p.Latency.Ratio, 4) || !near(p.Price, 3*.5*.056) || len(p.Latency.Cases) != 2 || p.Latency.Accelerator != "kvm" {
		t.Fatalf("price %+v", p)
	}
	if c := f.Price.Latency.Cases[1]; !near(c.Ratio, 8) || c.Blocks != 6 || !(c.Low > 7.8 && c.Low < 8 && near(c.Low*c.High, 64)) || !near(c.Hostlo, 8*c.SameNode) || c.Unit != "us" {
		t.Errorf("case %+v", c)
	}
	if *f.Priced != (summary.Priced{Cost: f.Whole}) { // 0.084 is above the 0.056 that a cut saves
		t.Errorf("at the price: %+v, want nothing cut", f.Priced)
	}
	f = frontierOf(t, "--trace", trace, "--hostlo-run", dir+",link-cpu=0.5,case=udp_rr/64")
	if !near(f.Price.Price, .028) || f.Priced.Users != 2 || f.Priced.Cut != 4 || f.Priced.Cuts != dollarsOf(t, "0.112") || f.Priced.Split != 2 {
		t.Errorf("with the case of ratio 2: %+v, %+v", f.Price, f.Priced)
	}
}

// The price of a cut is that of the models on sale for the cluster, not of the paper's.
func TestCutPriceOfCluster(t *testing.T) {
	f := frontierOf(t, "--trace", "generated:eks=4", "--hostlo-run", latencyRun(t, "SameNode", "Hostlo"))
	var models cluster.Catalogue
	for _, m := range f.Settings.Catalogue {
		models = append(models, cluster.Model{Size: cluster.Resources{CPU: int64(m.VCPU * cluster.VCPU)}, Price: int64(m.Price)})
	}
	if want := summary.NewCutPrice(f.Price.Latency, f.Price.LinkCPU, models); want.VCPU-f.Price.VCPU > 1 || f.Price.VCPU-want.VCPU > 1 {
		t.Errorf("a vCPU costs %v, want %v, the cheapest of %+v", f.Price.VCPU, want.VCPU, f.Settings.Catalogue)
	}
}

// The page and the JSON of a plan say that the run behind its price was too noisy to conclude.
func TestCutPriceOfNoisyRun(t *testing.T) {
	trace, dir := "csv:"+file(t, "pods.csv", pods), latencyRun(t, "SameNode", "Hostlo")
	journal := filepath.Join(dir, rundir.SamplesFile)
	quiet := read(t, journal)
	busy := strings.ReplaceAll(quiet, `"boot":""`, `"boot":"","tags":{"others":"1.500","steal":"0.000"}`)
	if err := os.WriteFile(journal, []byte(busy), 0o644); err != nil || busy == quiet {
		t.Fatalf("%v: %.300s", err, quiet)
	}
	const want = "Too noisy to conclude: in 24 of 24 executions, other processes used 1.50 processors on average."
	if notes := frontierOf(t, "--trace", trace, "--hostlo-run", dir).Price.Latency.Notes; len(notes) == 0 || !strings.HasPrefix(notes[0], want) {
		t.Errorf("notes %q", notes)
	}
	plain := filepath.Join(t.TempDir(), "frontier.txt")
	must(t, "--trace", trace, "--links", "all", "--hostlo-run", dir, "-o", plain)
	if text := words(read(t, plain)); !strings.Contains(text, dir+": "+want) {
		t.Errorf("the text lacks %q:\n%s", want, text)
	}
}

func near(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 }

func TestCutPriceErrors(t *testing.T) {
	trace := "csv:" + file(t, "pods.csv", pods)
	both := latencyRun(t, "SameNode", "Hostlo")
	broken := latencyRun(t, "SameNode", "Hostlo")
	if err := os.WriteFile(filepath.Join(broken, rundir.SamplesFile), []byte("{}\n{}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		args []string
		want string
	}{
		{[]string{"--links", "all", "--hostlo-run", "nowhere"}, "no such directory"},
		{[]string{"--links", "all", "--hostlo-run", t.TempDir()}, "not a run directory"},
		{[]string{"--links", "all", "--hostlo-run", broken}, "samples.jsonl"},
		{[]string{"--links", "all", "--hostlo-run", latencyRun(t, "NAT", "SameNode")}, "has no configuration Hostlo, only NAT, SameNode: name a run that compares"},
		{[]string{"--links", "all", "--hostlo-run", both + ",case=udp"}, `has no case "udp": want one of udp_rr/64, udp_rr/1024`},
		{[]string{"--links", "all", "--hostlo-run", both + ",case=tcp_stream"}, "has no latency_mean of both SameNode and Hostlo in the case tcp_stream"},
		{[]string{"--links", "all", "--hostlo-run", both + ",link-cpu=0"}, "want a number of vCPUs above 0"},
		{[]string{"--links", "all", "--hostlo-run", both + ",speed=2"}, `unknown key "speed": want DIR[,case=CASE][,link-cpu=VCPUS]`},
		{[]string{"--hostlo-run", both}, "needs --links: add --links all"},
		{[]string{"--links", "annotations"}, "only kubectl dumps have annotations"},
		{[]string{"--links", "all", "--shard", "0/2"}, "if any flags in the group"},
	}
	for _, tt := range tests {
		_, err := execute(t.Context(), t, append([]string{"--trace", trace}, tt.args...)...)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: got %v, want %q", tt.args, err, tt.want)
		}
	}
}

func TestFrontierPrinted(t *testing.T) {
	html, plain := filepath.Join(t.TempDir(), "frontier.html"), filepath.Join(t.TempDir(), "frontier.txt")
	trace := "csv:" + file(t, "pods.csv", strings.ReplaceAll(pods, "ann", "<b>&ann"))
	must(t, "--trace", trace, "--links", "all", "--hostlo-run", latencyRun(t, "SameNode", "Hostlo"), "-o", html, "-o", plain)
	text := words(read(t, plain))
	for _, want := range []string{
		"nothing cut 1.008 0 % 0 0", "0.056 0.784 -22.22 % 4 2", "udp_rr/1024 10.25 us 81.99 us 8.00 7.81-8.19 6",
		"A link of weight 1 keeps 0.01 vCPU busy or waiting within a VM, and 4.000 times that when it is cut. A vCPU costs 0.056 $/h, so a cut of weight 1 costs 0.00168 $/h.",
		"At 0.00168 $/h for a unit of weight, 2 users cut a weight of 4 in 2 split pods: VMs cost 0.784 $/h and cuts 0.007 $/h, together -21.56 % against nothing cut.",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
	checkPage(t, html, `"x":[0,4],"values":[100,77.`, `>0.056</th>`, "&lt;b&gt;&amp;ann", "2 users cut a weight of 4")
}

// words joins the words of a text by single spaces.
func words(text string) string { return strings.Join(strings.Fields(text), " ") }

// checkPage checks that a page says what is wanted, draws charts, escapes names and
// loads nothing.
func checkPage(t *testing.T, path string, wanted ...string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := strings.ReplaceAll(string(data), "\u00a0", " ") // keeps numbers and units on one line
	page = regexp.MustCompile(`(?s)<script>.*?</script>`).ReplaceAllString(page, "")
	for _, want := range append(wanted, `id="report-data"`) {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, never := range []string{" src=", "<link", "@import", "<b>&", ">NaN", ":NaN", ">Inf"} {
		if strings.Contains(page, never) {
			t.Errorf("the page has %q", never)
		}
	}
}

// A frontier of nobody can be printed.
func TestFrontierEmpty(t *testing.T) {
	html, plain := filepath.Join(t.TempDir(), "frontier.html"), filepath.Join(t.TempDir(), "frontier.txt")
	must(t, "--trace", "csv:"+file(t, "pods.csv", "user,pod,container,cpu,memory\ncyd,huge,x,100,1Gi\n"), "--links", "all", "-o", html, "-o", plain)
	if _, err := os.Stat(html); err != nil || !strings.Contains(words(read(t, plain)), "nothing cut 0.000 0 %") {
		t.Errorf("%v, printed %s", err, read(t, plain))
	}
}
