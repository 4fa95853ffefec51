package plan

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/plan/summary"
)

// pods is a small trace: ann saves by moving a container, dan only by buying small
// VMs for one pod, bob nothing; no VM holds the pod of cyd.
const pods = `user,pod,container,cpu,memory
ann,big,a,1,4Gi
ann,big,b,1,4Gi
ann,big,c,1,4Gi
ann,small,main,3,12Gi
ann,idle,main,0,
bob,web,main,0.5,1Gi
bob,web,log,50m,
cyd,huge,left,50,100Gi
cyd,huge,right,50,100Gi
dan,three,a,2,8Gi
dan,three,b,2,8Gi
dan,three,c,2,8Gi
`

// execute runs the command with args and returns what it has printed.
func execute(ctx context.Context, t *testing.T, args ...string) (string, error) {
	t.Helper()
	return executeWith(ctx, t, "", args...)
}

// executeWith is execute with a text on standard input.
func executeWith(ctx context.Context, t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	var out, stderr bytes.Buffer
	cmd := NewCmd(terminal.Streams{In: strings.NewReader(stdin), Out: &out, Err: &stderr}, Run)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&stderr)
	err := cmd.ExecuteContext(ctx)
	if stderr.Len() > 0 {
		t.Errorf("%v: stderr %q", args, stderr.String())
	}
	return out.String(), err
}

// must is execute without an error.
func must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := execute(t.Context(), t, args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return out
}

// file writes text to a new file and returns its path.
func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// read returns the text of a file.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// offer writes a YAML file for --catalogue.
func offer(t *testing.T, text string) string {
	t.Helper()
	return file(t, "offer.yaml", text+"\n")
}

// decode reads a result.
func decode(t *testing.T, text string) summary.Plan {
	t.Helper()
	var r summary.Plan
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// The keys that others read, with the costs worked out by hand: ann has two xlarge,
// then an xlarge and a large; bob a large; dan a 2xlarge, or three large.
func TestJSON(t *testing.T) {
	out := must(t, "--trace", "csv:"+file(t, "pods.csv", pods), "--json")
	var got struct {
		Users  int                `json:"users"`
		Saving int                `json:"users_saving"`
		Cost   map[string]float64 `json:"cost"`
		Bound  float64            `json:"bound"`
		Left   int                `json:"pods_left_out"`
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{
		"kubernetes": .448 + .112 + .448, "resize": .448 + .112 + .448, "hostlo": .336 + .112 + .448,
		"spread": .336 + .112 + .336, "whole": .448 + .112 + .448, "best": .336 + .112 + .336,
	}
	near := cmp.Comparer(func(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 })
	if diff := cmp.Diff(want, got.Cost, near); diff != "" {
		t.Errorf("cost (-want +got):\n%s", diff)
	}
	if got.Users != 3 || got.Saving != 1 || got.Left != 1 || !cmp.Equal(got.Bound, want["best"], near) {
		t.Errorf("got %+v, want 3 users of whom 1 saves, 1 pod left out, a bound of %v", got, want["best"])
	}
}

// Pieces of a trace that share no users are put together as well.
func TestMergePieces(t *testing.T) {
	header, ann, _ := strings.Cut(pods, "\n")
	ann, rest, _ := strings.Cut(ann, "bob,web,main")
	a := file(t, "a.json", must(t, "--json", "--trace", "csv:"+file(t, "a.csv", header+"\n"+ann)))
	b := file(t, "b.json", must(t, "--json", "--trace", "csv:"+file(t, "b.csv", header+"\nbob,web,main"+rest)))
	whole := decode(t, must(t, "--json", "--trace", "csv:"+file(t, "all.csv", pods)))
	merged := decode(t, must(t, "merge", a, b, "--json"))
	if len(merged.Traces) != 2 || merged.Traces[0].Rows+merged.Traces[1].Rows != whole.Traces[0].Rows {
		t.Errorf("read %+v, want two pieces of together %d rows", merged.Traces, whole.Traces[0].Rows)
	}
	merged.Traces = whole.Traces
	if diff := cmp.Diff(whole, merged); diff != "" {
		t.Errorf("merged pieces are not the whole:\n%s", diff)
	}
}

func TestMergeErrors(t *testing.T) {
	trace := "csv:" + file(t, "pods.csv", pods)
	plain := file(t, "plain.json", must(t, "--trace", trace, "--json"))
	zero := file(t, "zero.json", must(t, "--trace", trace, "--json", "--shard", "0/2"))
	other := file(t, "other.json", must(t, "--trace", trace, "--json", "--shard", "1/2", "--oversize", "cut"))
	odd := file(t, "odd.json", must(t, "--trace", trace, "--json", "--shard", "1/3"))
	foreign := file(t, "foreign.json", must(t, "--trace", "csv:"+file(t, "f.csv", pods+"eve,x,y,1,1Gi\n"), "--json", "--shard", "1/2"))
	tests := []struct {
		args []string
		want string
	}{
		{[]string{zero}, "of 2 shards these are missing: 1"},
		{[]string{zero, other}, "were planned with other options or catalogues"},
		{[]string{zero, odd}, "are not shards of the same number"},
		{[]string{zero, foreign}, "are shards of different traces"},
		{[]string{plain, plain}, "user ann is in"},
		{[]string{file(t, "later.json", strings.Replace(must(t, "--trace", trace, "--json"), `"schema_version": 1`, `"schema_version": 9`, 1))}, "schema_version 9 is of a later unnest"},
		{[]string{file(t, "x.json", "{}")}, "is not the result of a plan"},
		{[]string{file(t, "replay.json", must(t, "--trace", googleTrace(t), "--replay", "--json"))}, "is not the result of a plan: want a file written by unnest plan --json, without --links and --replay"},
		{[]string{file(t, "links.json", must(t, "--trace", trace, "--links", "all", "--json"))}, "is not the result of a plan"},
		{[]string{file(t, "use.json", strings.Replace(must(t, "--trace", trace, "--json"), "{", `{"use": {},`, 1))}, "use.json has requests by use, which cannot be merged"},
		{[]string{file(t, "y.json", "{")}, "want a file written by unnest plan --json"},
		{[]string{"nowhere.json"}, "no such file"},
		{[]string{t.TempDir()}, "has no .json files"},
		{nil, "missing argument FILE.json"},
	}
	for _, tt := range tests {
		_, err := execute(t.Context(), t, append([]string{"merge"}, tt.args...)...)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("merge %v: got error %v, want one with %q", tt.args, err, tt.want)
		}
	}
}

// Interrupted, the command returns at once and has written nothing.
func TestInterrupt(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	interrupted := make(chan time.Time, 1)
	time.AfterFunc(200*time.Millisecond, func() {
		interrupted <- time.Now()
		cancel(stopped)
	})
	_, err := execute(ctx, t, "--trace", "generated:1000", "-o", filepath.Join(dir, "out.json"),
		"-o", filepath.Join(dir, "out.html"), "--write", filepath.Join(dir, "manifests"))
	if took := time.Since(<-interrupted); !errors.Is(err, stopped) || took > time.Minute {
		t.Errorf("ended %v after the interrupt with %v, want %v at once", took, err, stopped)
	}
	if left, err := os.ReadDir(dir); len(left) > 0 || err != nil {
		t.Errorf("left %v, %v", left, err)
	}
}

// A trace on standard input is planned like a file.
func TestStdin(t *testing.T) {
	want := must(t, "--trace", "csv:"+file(t, "pods.csv", pods), "--json")
	got, err := executeWith(t.Context(), t, pods, "--trace", "csv:-", "--json")
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v; - file, + standard input:\n%s", err, diff)
	}
	dump := `{"items":[{"metadata":{"name":"p","namespace":"n"},"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]}}]}`
	text, err := executeWith(t.Context(), t, dump, "--trace", "kubectl:-", "--json")
	if err != nil || decode(t, text).Users != 1 {
		t.Errorf("kubectl: error %v, printed %s", err, text)
	}
}

// Input that cannot be planned, and words that no flag knows, end in an error that says what
// to do.
func TestInputErrors(t *testing.T) {
	memory := file(t, "pods.csv", "user,pod,container,cpu,memory\nu,p,c,1,4GG\n")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--trace", "csv:" + memory}, memory + ` line 2: memory "4GG": want bytes or 4Gi, 512Mi`},
		{[]string{"--trace", "kubectl:" + file(t, "none.json", `{"items":[]}`)}, "none.json: the list of pods is empty: make it with kubectl get pods -A -o json"},
		{[]string{"--trace", "gogle2011:x"}, `unknown format "gogle2011": did you mean google2011 or google2019?; the formats are alibaba2017,`},
		{[]string{"--trace", "kubctl:x"}, `unknown format "kubctl": did you mean kubectl?; the formats are alibaba2017,`},
		{[]string{"--trace", "google2011:-"}, "read google2011 from standard input: this format is not a single stream"},
		{[]string{"--trace", "generated:1", "--oversize", "wrong"}, "want one of drop, cut, refuse"},
		{[]string{"--trace", "generated:1", "--packing", "requested=wrong"}, "--packing requested=wrong: want one of vm, largest"},
		{[]string{"--trace", "generated:1", "--packing", "wasted=wrong"}, "want one of vm, largest"},
		{[]string{"--trace", "generated:1", "--packing", "moving=wrong"}, "want one of vm, container"},
		{[]string{"--trace", "generated:1", "--packing", "emptying=wrong"}, "want one of wasted, filled, cheapest, bought"},
		{[]string{"--trace", "generated:1", "--packing", "rounds=2,effort=-1"}, "--packing effort=-1: want a whole number from 0"},
		{[]string{"--trace", "generated:1", "--packing", "speed=1"}, `--packing "speed=1" is unknown: want KEY=VALUE with one of the keys requested, wasted, moving, emptying, rounds, effort`},
		{[]string{"--trace", "generated:1", "--catalogue", offer(t, "kube_reserved: wrong")}, "offer.yaml:1: kube_reserved: want one of none, gke, eks"},
		{[]string{"--trace", "generated:1", "--write", "best:"}, "want [PLAN:]DIR, such as whole:vms"},
		{[]string{"--trace", "generated:1", "--owner", "wrong"}, "want namespace, label=KEY or cluster"},
		{[]string{"--trace", "generated:1", "--links", "wrong"}, "name a CSV file, all or annotations"},
		{[]string{"--trace", "generated:1", "--catalogue", "wrong"}, "want one of azure-dpsv5, "},
		{[]string{"--trace", "generated:1", "--catalogue", offer(t, "models: [wrong]")}, "want one of large, xlarge, 2xlarge, 4xlarge, 12xlarge, 24xlarge"},
		{[]string{"--trace", "parquet:users"}, "Parquet files are not read: write a CSV file with DuckDB, as docs/plan.md shows"},
		{[]string{"--trace", "google2011", "--json"}, "want FORMAT:PATH, such as csv:pods.csv"},
		{[]string{"--trace", "generated:1", "-o", "a.json", "-o", "b.html", "--json"}, "the extension of each file chooses its format: omit them"},
		{[]string{"--trace", "generated:1", "--replay=x"}, "want a number of containers from 0"},
		{[]string{"--trace", "generated:1", "--catalogue", offer(t, "price: spot"), "--catalogue", offer(t, "price: spot")}, "want one YAML file: write all into it"},
		{[]string{"--trace", "x:y", "--columns", file(t, "own.yaml", "tables: []\n")}, "own.yaml:1: tables: the list is empty"},
		{[]string{"--trace", "x:y", "--columns", "nowhere.yaml"}, "--columns: open nowhere.yaml: no such file"},
	} {
		if _, err := execute(t.Context(), t, tt.args...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: error %v, want one with %q", tt.args, err, tt.want)
		}
	}
}

// The first of several users who fail is named, whatever the processors do.
func TestRefuseNamesTheSame(t *testing.T) {
	trace := pods
	for i := range 40 {
		trace += fmt.Sprintf("u%d,p,c,%d,1Gi\n", i, 97+i)
	}
	path := file(t, "pods.csv", trace)
	for range 5 {
		_, err := execute(t.Context(), t, "--trace", "csv:"+path, "--oversize", "refuse")
		if err == nil || !strings.Contains(err.Error(), "user cyd: pod huge needs 100 vCPU") {
			t.Fatalf("got %v, want the pod of cyd", err)
		}
	}
}

func TestProgress(t *testing.T) {
	var out, screen bytes.Buffer
	cmd := NewCmd(terminal.Streams{Out: &out, Err: &screen, ErrWidth: 40}, Run)
	cmd.SetArgs([]string{"--trace", "csv:" + file(t, "pods.csv", pods)})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if text := screen.String(); !strings.Contains(text, "reading ") || !strings.HasSuffix(text, "\r\x1b[K") {
		t.Errorf("the terminal was shown %q, want what is read, and an empty line at the end", text)
	}
	for _, line := range strings.Split(screen.String(), "\r\x1b[K") {
		if len([]rune(line)) >= 40 {
			t.Errorf("%q is wider than the terminal", line)
		}
	}
}

func TestHTML(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plan.html")
	must(t, "--trace", "csv:"+file(t, "pods.csv", strings.ReplaceAll(pods, "ann", "<b>&ann")), "-o", path)
	checkPage(t, path, `"0-5 %","5-10 %","10-15 %","15-20 %","20-25 %"`, ">1.008<", "&lt;b&gt;&amp;ann", "requests no memory")
}

// A page of nobody has no values that cannot be drawn.
func TestEmpty(t *testing.T) {
	path, plain := filepath.Join(t.TempDir(), "plan.html"), filepath.Join(t.TempDir(), "plan.txt")
	trace := "csv:" + file(t, "pods.csv", "user,pod,container,cpu,memory\ncyd,huge,x,100,1Gi\n")
	must(t, "--trace", trace, "-o", path, "-o", plain)
	out := read(t, plain)
	if !strings.Contains(out, "0 users, 0 pods") || !strings.Contains(out, "Left out: 1 pod") {
		t.Errorf("printed %s", out)
	}
	checkPage(t, path)
	if r := decode(t, must(t, "--trace", trace, "--json")); r.PerUser == nil || r.Largest == nil || r.Unplanned != 1 {
		t.Errorf("got %+v, want empty lists and one user without pods", r)
	}
}

func TestManifests(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	trace := "csv:" + file(t, "pods.csv", strings.ReplaceAll(pods, "dan,three", "Dan=,3"))
	must(t, "--trace", trace, "--write", dir)
	got := map[string]string{}
	entries, err := os.ReadDir(filepath.Join(dir, "manifests"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, "manifests", e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		var m struct {
			APIVersion, Kind string
			Metadata         struct {
				Name, Namespace     string
				Labels, Annotations map[string]string
			}
		}
		if err := yaml.Unmarshal(data, &m); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		a := m.Metadata.Annotations
		if m.Kind != "Pod" || len(m.Metadata.Labels) > 0 || len(a) != 3+2*(1+strings.Count(a["unnest.io/split"], ";")) {
			t.Errorf("%s: got %+v", e.Name(), m)
		}
		got[e.Name()] = m.Metadata.Namespace + "/" + m.Metadata.Name + ": " + a["unnest.io/user"] + " " + a["unnest.io/pod"] + " " + a["unnest.io/split"] + " on " +
			a["unnest.io/fraction.0.model"] + ", " + a["unnest.io/fraction.1.model"]
	}
	want := map[string]string{
		"ann_big.yaml":                "ann/big: ann big a;b,c on xlarge, large",
		"dan_3_be55e4cc5c4b3d7c.yaml": "/3: Dan= 3 a,c;b on xlarge, large",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("manifests (-want +got):\n%s", diff)
	}
	if _, err := execute(t.Context(), t, "--trace", trace, "--write", dir); err == nil || !strings.Contains(err.Error(), "is not empty: name a new directory") {
		t.Errorf("a second time: got %v, want a refusal", err)
	}
}

// The recipe's arguments are ones that the commands take, and its numbers agree.
func TestJobs(t *testing.T) {
	type job struct {
		Spec struct {
			Completions, Parallelism int
			Template                 struct {
				Spec struct{ Containers []struct{ Args []string } }
			}
		}
	}
	load := func(name string) job {
		data, err := os.ReadFile("../../../deploy/plan/" + name)
		if err != nil {
			t.Fatal(err)
		}
		var j job
		if err := yaml.Unmarshal(data, &j); err != nil {
			t.Fatal(err)
		}
		return j
	}
	j := load("job.yaml")
	var opts Options
	cmd := NewCmd(terminal.Streams{}, func(_ context.Context, o Options) error { opts = o; return nil })
	args := j.Spec.Template.Spec.Containers[0].Args
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "$(JOB_COMPLETION_INDEX)", "7")
	}
	cmd.SetArgs(args[1:])
	if err := cmd.Execute(); err != nil || args[0] != "plan" {
		t.Fatalf("%v: %v", args, err)
	}
	shard, err := parseShard(opts.Shard)
	if err != nil || shard.Of != j.Spec.Completions || shard.Of != j.Spec.Parallelism || !slices.Equal(opts.Output.Files, []string{"/data/out/7.json"}) {
		t.Errorf("%+v of %+v, %v: want a shard for each of the completions, as JSON in a file", shard, j, err)
	}
	merge := load("merge.yaml").Spec.Template.Spec.Containers[0].Args
	mergeCmd := newMergeCmd(terminal.Streams{})
	if merge[0] != "plan" || merge[1] != "merge" || mergeCmd.ParseFlags(merge[2:]) != nil || !slices.Equal(mergeCmd.Flags().Args(), []string{filepath.Dir(opts.Output.Files[0])}) {
		t.Errorf("%v: want to merge %s", merge, filepath.Dir(opts.Output.Files[0]))
	}
}

// The YAML files of docs/plan.md are ones that the command takes.
func TestDocumentedFiles(t *testing.T) {
	page := read(t, "../../../docs/plan.md")
	block := func(name string) string {
		_, text, ok := strings.Cut(page, "```yaml\n# "+name+": ")
		text, _, closed := strings.Cut(text, "```")
		if !ok || !closed {
			t.Fatalf("docs/plan.md has no %s", name)
		}
		return "# " + text
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"jobs.yaml": block("jobs.yaml"), "offer.yaml": block("offer.yaml"),
		"jobs.csv":    "team,job,task,millicpus,mb,started,ended\nred,j,a,500,1024,0,10\nred,j,b,500,1024,5,\n",
		"flavors.csv": "model,vcpu,memory,price,pods,arch,gpus,offered,price_spot,price_savings_1y\nown.large,2,8 GiB,0.1,29,,,,0.04,\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	jobs := []string{"--trace", filepath.Join(dir, "jobs.csv"), "--columns", filepath.Join(dir, "jobs.yaml"), "--json"}
	if r := decode(t, must(t, jobs...)); r.Users != 1 || r.Containers != 2 {
		t.Errorf("jobs.yaml: %d users, %d containers", r.Users, r.Containers)
	}
	if r := decode(t, must(t, append(jobs, "--at", "7s")...)); r.Containers != 2 || r.Traces[0].Format != "jobs" {
		t.Errorf("at 7 s: %d containers of %s", r.Containers, r.Traces[0].Format)
	}
	if r := decode(t, must(t, append(jobs, "--catalogue", filepath.Join(dir, "offer.yaml"))...)); r.Cost.Best != dollarsOf(t, "0.04") || r.Settings.KubeReserved != "gke" || r.Settings.Host != "96 vCPU, 384 GiB" {
		t.Errorf("offer.yaml: best costs %s, settings %+v", r.Cost.Best, r.Settings)
	}
}

// googleVariable names the directory with part 0 of the Google trace of 2011.
const googleVariable = "UNNEST_GOOGLE2011"

// The embedded piece always, and the real one where UNNEST_GOOGLE2011 names it. The
// figures of the real one are docs/results/plan-google2011.md.
func TestPiece(t *testing.T) {
	pieces := []struct {
		dir, oversize     string
		users, kubernetes string
		gap               float64
	}{{"../../plan/trace/testdata/google2011", "drop", "3", "5.488", 0}}
	if dir := os.Getenv(googleVariable); dir != "" {
		pieces = append(pieces, []struct {
			dir, oversize     string
			users, kubernetes string
			gap               float64
		}{{dir, "drop", "492", "2194.976", .02}, {dir, "cut", "507", "48687.184", .04}}...)
	} else {
		t.Logf("%s is not set: ONLY THE EMBEDDED PIECE WAS TRIED", googleVariable)
	}
	for _, p := range pieces {
		r := decode(t, must(t, "--trace", "google2011:"+p.dir, "--oversize", p.oversize, "--json"))
		if fmt.Sprint(r.Users) != p.users || r.Cost.Kubernetes.String() != p.kubernetes || r.Gap > p.gap {
			t.Errorf("%s: %d users, %s $/h, gap %v; want %s, %s, at most %v", p.oversize, r.Users, r.Cost.Kubernetes, r.Gap, p.users, p.kubernetes, p.gap)
		}
		for _, u := range r.PerUser {
			if u.Bound > u.Cost.Best || u.Cost.Best > min(u.Cost.Hostlo, u.Cost.Spread, u.Cost.Whole) || u.Cost.Hostlo > u.Cost.Kubernetes || u.Cost.Resize != u.Cost.Kubernetes {
				t.Errorf("user %s: costs out of order: %+v, bound %s", u.Name, u.Cost, u.Bound)
			}
		}
	}
}
