package plan

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"unnest.io/unnest/internal/plan/kubernetes"
	"unnest.io/unnest/internal/plan/summary"
	"unnest.io/unnest/internal/plan/trace"
)

func clusterOf(t *testing.T, args ...string) *summary.Today {
	t.Helper()
	r := decode(t, must(t, append(args, "--json")...))
	if r.Today == nil {
		t.Fatal("the result has no cluster")
	}
	return r.Today
}

// A dump with nodes is one cluster, with options of its own; without nodes, or for another owner,
// nothing is compared.
func TestClusterOptions(t *testing.T) {
	var text strings.Builder
	if err := (kubernetes.SyntheticCluster{Seed: 1, Nodes: 12}).WriteDump(&text); err != nil {
		t.Fatal(err)
	}
	from := "kubectl:" + file(t, "cluster.json", text.String())
	all, few := clusterOf(t, "--trace", from), clusterOf(t, "--trace", from, "--catalogue", offer(t, "models: [m6i.4xlarge, m6i.2xlarge, r6i.xlarge]"))
	if !all.Largest || few.Largest || all.Now != few.Now || all.Reserved != "eks" {
		t.Errorf("limited %v and %v, now %s and %s, reserved %s", all.Largest, few.Largest, all.Now, few.Now, all.Reserved)
	}
	if r := decode(t, must(t, "--trace", from, "--owner", "namespace", "--json")); r.Today != nil || r.Users < 5 || !strings.Contains(strings.Join(r.Traces[0].Remarks, " "), "The nodes are not used") {
		t.Errorf("by namespace: %d users, remarks %v", r.Users, r.Traces[0].Remarks)
	}
	if text := must(t, "--trace", from, "--explain", "ns-03"); !strings.Contains(text, "Plans of user ns-03") {
		t.Errorf("a namespace cannot be explained:\n%s", text)
	}
	if text := must(t, "--trace", from, "--explain", "us-east-1a workload=general"); !strings.Contains(text, "m6i.") {
		t.Errorf("a pool cannot be explained:\n%s", text)
	}
	if _, err := execute(t.Context(), t, "--trace", "kubectl:"+file(t, "z.json", strings.NewReplacer("m6i.", "z9.", "r6i.", "z9.", "g5.", "z9g.").Replace(text.String()))); err == nil ||
		!strings.Contains(err.Error(), "no built-in catalogue has prices of z9.2xlarge, z9.4xlarge, z9.xlarge, z9g.xlarge, which the nodes are: name models with --catalogue FILE") {
		t.Errorf("nodes without prices: error %v", err)
	}
	one := must(t, "--trace", "csv:"+file(t, "pods.csv", pods), "--owner", "cluster", "--json")
	if r := decode(t, one); r.Users != 1 || r.PerUser[0].Name != trace.WholeCluster || r.Pods != 4 {
		t.Errorf("csv of one owner: %d users, %d pods", r.Users, r.Pods)
	}
	if _, err := execute(t.Context(), t, "--trace", "generated:eks=2"); err == nil || !strings.Contains(err.Error(), "want one eks=NODES or eks=NODES,SEED") {
		t.Errorf("two nodes: error %v", err)
	}
}

// Nodes of a private cloud name no model. Their size is matched with a catalogue, or priced.
func TestClusterWithoutModels(t *testing.T) {
	var text strings.Builder
	if err := (kubernetes.SyntheticCluster{Seed: 1, Nodes: 12}).WriteDump(&text); err != nil {
		t.Fatal(err)
	}
	dump := "kubectl:" + file(t, "private.json", strings.ReplaceAll(text.String(), `"node.kubernetes.io/instance-type"`, `"flavor"`))
	if _, err := execute(t.Context(), t, "--trace", dump); err == nil || !strings.Contains(err.Error(), "has no label node.kubernetes.io/instance-type, so its price is not known: say what a vCPU and a GiB cost for an hour (unit_prices: {vcpu: 0.02, gib: 0.0025} in a YAML file for --catalogue), or name models with --catalogue FILE") {
		t.Errorf("no prices: error %v", err)
	}
	priced := decode(t, must(t, "--trace", dump, "--catalogue", offer(t, "unit_prices: {vcpu: 0.03, gib: 0.004}"), "--json")).Today
	if priced == nil || priced.Now == 0 || !(priced.Bound <= priced.Split && priced.Split <= priced.Packed && priced.Packed <= priced.Now) ||
		!slices.Equal(priced.Catalogues, []string{"the sizes of the nodes"}) || !slices.Equal(priced.Prices, []string{"0.03 $/h for a vCPU and 0.004 $/h for a GiB"}) {
		t.Errorf("sizes of the nodes: %+v", priced)
	}
	for model := range priced.Pools[0].PackedVMs {
		if !strings.Contains(model, "vcpu-") {
			t.Errorf("buys %s, which is no size of a node", model)
		}
	}
	r := decode(t, must(t, "--trace", dump, "--catalogue", "m6i", "--catalogue", "r6i", "--json"))
	if remarks := strings.Join(r.Traces[0].Remarks, " "); r.Today == nil || r.Today.Now == 0 || !strings.Contains(remarks, "nodes without the label node.kubernetes.io/instance-type are taken for the smallest model of their size.") {
		t.Errorf("matched with a catalogue: %+v, remarks %s", r.Today, remarks)
	}
	if _, err := execute(t.Context(), t, "--trace", dump, "--catalogue", offer(t, "unit_prices: {vcpu: 900000000, gib: 0}")); err == nil || !strings.Contains(err.Error(), "correct the prices of a vCPU") {
		t.Errorf("prices that are too high: error %v", err)
	}
}

// --kubeconfig asks kubectl, and says what kubectl says.
func TestKubeconfig(t *testing.T) {
	dir := t.TempDir()
	dump := filepath.Join(dir, "dump.json")
	f, err := os.Create(dump)
	if err != nil {
		t.Fatal(err)
	}
	if err := (kubernetes.SyntheticCluster{Seed: 1, Nodes: 12}).WriteDump(f); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	script := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	script("echo \"$*\" > " + dir + "/args\ncat " + dump)
	want := clusterOf(t, "--trace", "kubectl:"+dump)
	got := clusterOf(t, "--kubeconfig", "/k,context=prod")
	args, err := os.ReadFile(filepath.Join(dir, "args"))
	if err != nil || string(args) != "get nodes,pods,poddisruptionbudgets,persistentvolumes,csinodes,namespaces -A -o json --kubeconfig /k --context prod\n" || got.Split != want.Split {
		t.Errorf("kubectl %q, %v; cost %s, want %s", args, err, got.Split, want.Split)
	}
	script("cat " + dump + "\necho 'Error from server (Forbidden): poddisruptionbudgets.policy is forbidden: no' >&2\nexit 1")
	r := decode(t, must(t, "--kubeconfig", "default", "--json"))
	if !strings.Contains(strings.Join(r.Traces[0].Remarks, " "), "kubectl could not read everything: Error from server (Forbidden): poddisruptionbudgets.policy is forbidden: no") {
		t.Errorf("remarks %v", r.Traces[0].Remarks)
	}
	for _, complaint := range []string{"Error from server (Forbidden): pods is forbidden: no", "Unable to connect to the server: EOF"} {
		script("cat " + dump + "\necho 'Error from server (Forbidden): csinodes.storage.k8s.io is forbidden: no\n" + complaint + "' >&2\nexit 1")
		if _, err := execute(t.Context(), t, "--kubeconfig", "default"); err == nil || !strings.Contains(err.Error(), "could not read everything: ") {
			t.Errorf("%s: error %v", complaint, err)
		}
	}
	script("echo 'no such context' >&2\nexit 1")
	if _, err := execute(t.Context(), t, "--kubeconfig", "default"); err == nil || !strings.Contains(err.Error(), "--kubeconfig default: kubectl get nodes,pods,poddisruptionbudgets,persistentvolumes,csinodes,namespaces -A -o json: no such context") {
		t.Errorf("error %v", err)
	}
	t.Setenv("PATH", dir+"/nothing")
	if _, err := execute(t.Context(), t, "--kubeconfig", "default"); err == nil || !strings.Contains(err.Error(), "install kubectl, or name a file") {
		t.Errorf("without kubectl: error %v", err)
	}
}

// The VMs of a cluster are written for tools, those for whole pods too. A trace without nodes has
// none.
func TestWriteVMs(t *testing.T) {
	for _, scheme := range []string{"best", "whole"} {
		dir := filepath.Join(t.TempDir(), "out")
		must(t, "--trace", "generated:eks=12", "--write", scheme+":"+dir)
		for _, name := range []string{"karpenter.json", "eksctl-nodegroups.json", "nodegroups.tf.json", "placement.json"} {
			text, err := os.ReadFile(filepath.Join(dir, "vms", name))
			if err != nil || !strings.Contains(string(text), "us-east-1a") || name != "nodegroups.tf.json" && name != "placement.json" && !strings.Contains(string(text), "dedicated") {
				t.Errorf("%s of %s: %v:\n%.500s", name, scheme, err, text)
			}
		}
		if split, err := os.ReadDir(filepath.Join(dir, "manifests")); scheme == "whole" && !os.IsNotExist(err) {
			t.Errorf("manifests of whole pods: %v, %v", split, err)
		}
		if _, err := execute(t.Context(), t, "--trace", "generated:eks=12", "--write", dir); err == nil || !strings.Contains(err.Error(), "--write: "+dir+" is not empty") {
			t.Errorf("a second time: error %v", err)
		}
	}
	none := filepath.Join(t.TempDir(), "none")
	if _, err := execute(t.Context(), t, "--trace", "csv:"+file(t, "pods.csv", pods), "--write", "whole:"+none); err == nil || !strings.Contains(err.Error(), "there is nothing to write; name a dump of kubectl get nodes,pods -A -o json") {
		t.Errorf("without nodes: error %v", err)
	}
	if _, err := os.Stat(none); !os.IsNotExist(err) {
		t.Errorf("a directory is left: %v", err)
	}
}

// Steps say what disruption budgets demand of them, and those that save too little are left out.
func TestStepsOfACluster(t *testing.T) {
	var text strings.Builder
	if err := (kubernetes.SyntheticCluster{Seed: 1, Nodes: 24}).WriteDump(&text); err != nil {
		t.Fatal(err)
	}
	from := file(t, "cluster.json", text.String())
	all := clusterOf(t, "--trace", from)
	blocked := slices.IndexFunc(all.Steps, func(s summary.NextStep) bool { return len(s.Blocked) > 0 })
	if blocked < 0 {
		t.Fatalf("no disruption budget forbids a step: %+v", all.Steps)
	}
	for i, s := range all.Steps {
		if s.Action == summary.StepPack && (i < blocked) != (len(s.Blocked) == 0) {
			t.Errorf("step %d of %d is forbidden by %v", i, len(all.Steps), s.Blocked)
		}
	}
	name := all.Steps[blocked].Blocked[0]
	if page := must(t, "--trace", from); !strings.Contains(strings.Join(strings.Fields(page), " "), "once disruption budget "+name) {
		t.Errorf("the page does not say that %s forbids a step:\n%s", name, page)
	}
	allowed := file(t, "allowed.json", strings.ReplaceAll(text.String(), `"disruptionsAllowed": 0`, `"disruptionsAllowed": 1`))
	if page := strings.Join(strings.Fields(must(t, "--trace", allowed)), " "); !strings.Contains(page, "rounds, as disruption budgets allow") || strings.Contains(page, "once disruption budget") {
		t.Errorf("the page does not say how many rounds the budgets demand:\n%s", page)
	}

	least := max(all.Steps[0].Saves, all.Steps[1].Saves)
	few := clusterOf(t, "--trace", from, "--min-saving", least.String())
	if few.Packed <= all.Packed || few.Now != all.Now || few.Bound != all.Bound || len(few.Steps) == 0 || len(few.Steps) >= len(all.Steps) {
		t.Errorf("at least %s: could pay %s instead of %s in %d steps", least, few.Packed, all.Packed, len(few.Steps))
	}
	for _, s := range few.Steps {
		if s.Saves < least {
			t.Errorf("a step saves %s, less than %s", s.Saves, least)
		}
	}
	for _, p := range few.Pools {
		if p.TooLittle && (p.Packed != p.Now || len(p.Placement) > 0) {
			t.Errorf("pool %s is left out: %+v", p.Name, p)
		}
	}
	if page := must(t, "--trace", from, "--min-saving", "1000"); !strings.Contains(page, "by less than 1000.000 $/h") {
		t.Errorf("the page does not say that steps are left out:\n%s", page)
	}
	for _, c := range [][]string{{"--trace", from, "--min-saving", "-1"}, {"--trace", from, "--min-saving", "NaN"}, {"--trace", "generated:1", "--min-saving", "1"}} {
		if _, err := execute(t.Context(), t, c...); err == nil || !strings.Contains(err.Error(), "--min-saving") {
			t.Errorf("%v: error %v", c, err)
		}
	}
}
