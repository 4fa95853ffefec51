package plan

import (
	"fmt"
	"strings"
	"testing"
)

// kubePod is a pod with one container.
func kubePod(name, metadata, requests, spec string) string {
	return `{"kind":"Pod","metadata":{"name":"` + name + `","namespace":"shop"` + metadata + `},"spec":{"containers":[{"name":"c","resources":{"requests":{` +
		requests + `}}}]` + spec + `}}`
}

func kubeList(items ...string) string { return `{"items":[` + strings.Join(items, ",") + `]}` }

// Pods without requests take the places of pods, as many as a model has.
func TestBestEffortTakesPlaces(t *testing.T) {
	var items []string
	for i := range 30 {
		items = append(items, kubePod(fmt.Sprint("p", i), "", "", ""))
	}
	trace := "kubectl:" + file(t, "pods.json", kubeList(items...))
	r := decode(t, must(t, "--trace", trace, "--catalogue", offer(t, "models: [m5.large]"), "--json"))
	if want := dollarsOf(t, "0.192"); r.Cost.Best != want || r.Bound != want || r.Pods != 30 {
		t.Errorf("30 pods on VMs for 29 cost %s, bound %s; want two VMs, %s", r.Cost.Best, r.Bound, want)
	}
}

// DaemonSets are on each VM: two pods of 1.5 vCPU do not share 4 vCPU of which 1.2 are taken.
func TestDaemonSetsOnEveryVM(t *testing.T) {
	daemon := func(node string) string {
		return kubePod("cni-"+node, `,"ownerReferences":[{"kind":"DaemonSet","name":"cni","uid":"1"}]`, `"cpu":"1200m","memory":"1Gi"`, `,"nodeName":"`+node+`"`)
	}
	trace := "kubectl:" + file(t, "pods.json", kubeList(kubePod("a", "", `"cpu":"1500m"`, ""), kubePod("b", "", `"cpu":"1500m"`, ""), daemon("x"), daemon("y")))
	args := []string{"--trace", trace, "--catalogue", offer(t, "models: [xlarge]")}
	r := decode(t, must(t, append(args, "--json")...))
	if want := dollarsOf(t, "0.448"); r.Cost.Best != want || r.Bound != want || r.Pods != 2 {
		t.Errorf("cost %s, bound %s of %d pods; want two VMs, %s", r.Cost.Best, r.Bound, r.Pods, want)
	}
	if text := words(must(t, args...)); !strings.Contains(text, "Counted on every VM, from the dump: shop/cni (1.2 vCPU, 1 GiB, 1 pods).") {
		t.Errorf("the text does not say what is on every VM:\n%s", text)
	}
	text := words(must(t, "--trace", trace, "--catalogue", offer(t, "models: [xlarge]\ndaemonsets: {vcpu: 0, memory: 0, pods: 0}")))
	if !strings.Contains(text, "The catalogue's file replaces what the DaemonSets of the dump request: shop/cni.") || !strings.Contains(text, "best 0.224") {
		t.Errorf("the file does not replace the dump's:\n%s", text)
	}
	if _, err := execute(t.Context(), t, "--trace", "kubectl:"+file(t, "large.json", kubeList(kubePod("a", "", "", ""), strings.ReplaceAll(daemon("x"), "1200m", "200"))), "--json"); err == nil ||
		!strings.Contains(err.Error(), "no VM of the catalogue has room for what runs on every VM, 200 vCPU, 1 GiB, 1 pods") {
		t.Errorf("DaemonSets larger than any VM: error %v", err)
	}
}

// Sums that int64 does not hold are an error.
func TestOverflow(t *testing.T) {
	catalogue := file(t, "large.csv", "\ufeffmodel,vcpu,memory,price,pods\nlarge,1000000,1024 TiB,0.1,\n")
	dear := file(t, "dear.csv", "model,vcpu,memory,price,pods\ndear,1,1 GiB,1000000000,\n")
	many := "user,pod,container,cpu,memory\n"
	for i := range 10_000 {
		many += fmt.Sprintf("u,p%d,c,1000000,1Pi\n", i%7)
	}
	one := "user,pod,container,cpu,memory\n"
	for i := range 12 {
		one += fmt.Sprintf("u%d,p,c,1,1Gi\n", i)
	}
	for _, tt := range []struct{ trace, catalogue, want string }{
		{many, catalogue, "user u: its pods request more than 5.765e+08 vCPU"},
		{strings.ReplaceAll(one, "Gi", "Mi") + strings.Repeat("u0,q,c,1,1Gi\n", 12), dear, "user u0: 13 VMs of the highest price, 1e+09 $/h, cannot be added up"},
		{one, file(t, "dearer.csv", "model,vcpu,memory,price,pods\ndear,1,1 GiB,190000000,\n"), ""},
		{one + moreUsers(60), file(t, "most.csv", "model,vcpu,memory,price,pods\ndear,1,1 GiB,190000000,\n"), "which cannot be added up: correct the prices"},
	} {
		for _, more := range [][]string{{"--json"}, {"--oversize", "cut", "--json"}, {"--links", "all", "--json"}} {
			_, err := execute(t.Context(), t, append(more, "--trace", "csv:"+file(t, "pods.csv", tt.trace), "--catalogue", tt.catalogue)...)
			if tt.want == "" && err == nil {
				continue
			}
			if err == nil || tt.want == "" || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v: error %v, want %q", more, err, tt.want)
			}
		}
	}
}

// moreUsers are rows of users with one container each.
func moreUsers(n int) (rows string) {
	for i := range n {
		rows += fmt.Sprintf("v%d,p,c,1,1Gi\n", i)
	}
	return rows
}

// What a trace does not say is said in every output.
func TestRemarksArePrinted(t *testing.T) {
	trace := "csv:" + file(t, "pods.csv", pods)
	const want = "csv has no times: all containers are priced as if they ran at the same time."
	for _, args := range [][]string{nil, {"--links", "all"}, {"--json"}} {
		if text := words(must(t, append(args, "--trace", trace)...)); !strings.Contains(text, want) {
			t.Errorf("%v: the output lacks %q:\n%s", args, want, text)
		}
	}
	if _, err := executeWith(t.Context(), t, pods, "--trace", "csv:-", "--trace", "kubectl:-"); err == nil || !strings.Contains(err.Error(), "standard input is named twice") {
		t.Errorf("two traces on standard input: error %v", err)
	}
}
