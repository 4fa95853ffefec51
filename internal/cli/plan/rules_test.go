package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"unnest.io/unnest/internal/plan/summary"
)

type object = map[string]any

// nodesOf returns nodes of a model, with 14 GiB of ephemeral storage.
func nodesOf(model string, count int) (all []any) {
	size := map[string][3]string{"m6i.xlarge": {"4", "3900m", "14500Mi"}, "m6i.2xlarge": {"8", "7900m", "30000Mi"}}[model]
	for i := range count {
		name := fmt.Sprint("vm-", i)
		resources := func(cpu string) object {
			return object{"cpu": cpu, "memory": size[2], "pods": "58", "ephemeral-storage": "14Gi"}
		}
		all = append(all, object{"kind": "Node", "metadata": object{"name": name, "labels": object{"kubernetes.io/hostname": name, "node.kubernetes.io/instance-type": model, "topology.kubernetes.io/zone": "us-east-1b", "topology.kubernetes.io/region": "us-east-1"}},
			"spec": object{"providerID": "aws:///us-east-1b/" + name}, "status": object{"capacity": resources(size[0]), "allocatable": resources(size[1])}})
	}
	return all
}

// workload is pods that are alike.
type workload struct {
	name, namespace, labels string // labels are KEY=VALUE,…
	replicas, from          int    // from is the node of the first
	nodes                   int    // over which the pods are; 0: all on the first
	kind                    string // of the owner; empty: ReplicaSet
	requests                []object
	container, spec         object // more of the first container, and of the pod
}

func (w workload) pods() (all []any) {
	labels := object{}
	for pair := range strings.SplitSeq(w.labels, ",") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			labels[key] = value
		}
	}
	for i := range w.replicas {
		var containers []any
		for k, r := range w.requests {
			c := object{"name": fmt.Sprint("c", k), "resources": object{"requests": r}}
			if k == 0 {
				maps.Copy(c, w.container)
			}
			containers = append(containers, c)
		}
		spec := object{"nodeName": fmt.Sprint("vm-", w.from+i%max(1, w.nodes)), "containers": containers}
		maps.Copy(spec, w.spec)
		kind, namespace := w.kind, w.namespace
		if kind == "" {
			kind = "ReplicaSet"
		}
		if namespace == "" {
			namespace = "store"
		}
		all = append(all, object{"kind": "Pod", "metadata": object{"name": fmt.Sprint(w.name, "-", i), "namespace": namespace, "labels": labels, "ownerReferences": []any{object{"kind": kind, "name": w.name, "uid": w.name}}},
			"spec": spec, "status": object{"phase": "Running"}})
	}
	return all
}

func dumpOf(t *testing.T, objects ...[]any) string {
	t.Helper()
	text, err := json.Marshal(object{"kind": "List", "items": slices.Concat(objects...)})
	if err != nil {
		t.Fatal(err)
	}
	return file(t, "cluster.json", string(text))
}

func request(cpu, memory string) []object { return []object{{"cpu": cpu, "memory": memory}} }

func port(number int, more object) object {
	p := object{"containerPort": number, "hostPort": number}
	maps.Copy(p, more)
	return object{"ports": []any{p}}
}

func antiAffinity(label, value string, more object) object {
	term := object{"topologyKey": "kubernetes.io/hostname", "labelSelector": object{"matchLabels": object{label: value}}}
	maps.Copy(term, more)
	return object{"affinity": object{"podAntiAffinity": object{"requiredDuringSchedulingIgnoredDuringExecution": []any{term}}}}
}

func spreadBy(label, value string, more object) object {
	c := object{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": object{"matchLabels": object{label: value}}}
	maps.Copy(c, more)
	return object{"topologySpreadConstraints": []any{c}}
}

// relabelled gives each node a value of another label in place of one.
func relabelled(nodes []any, old, label string, values ...string) []any {
	for i, n := range nodes {
		labels := n.(object)["metadata"].(object)["labels"].(object)
		delete(labels, old)
		labels[label] = values[i]
	}
	return nodes
}

// Labels and taints that changed after pods came hold the nodes; taints that pass do not.
func TestNodesThatRefuseTheirPods(t *testing.T) {
	select1 := workload{name: "x", replicas: 2, nodes: 2, requests: request("150m", "200Mi"), spec: object{"nodeSelector": object{"team": "a"}}}
	plain := workload{name: "x", replicas: 2, nodes: 2, requests: request("150m", "200Mi")}
	tainted := func(key string) []any {
		nodes := nodesOf("m6i.xlarge", 2)
		for _, n := range nodes {
			n.(object)["spec"].(object)["taints"] = []any{object{"key": key, "effect": "NoSchedule"}}
		}
		return nodes
	}
	for _, c := range []struct {
		name  string
		nodes []any
		pods  workload
		stay  int
	}{
		{"another label", relabelled(nodesOf("m6i.xlarge", 2), "", "team", "b", "b"), select1, 1},
		{"the label", relabelled(nodesOf("m6i.xlarge", 2), "", "team", "a", "a"), select1, 0},
		{"a taint", tainted("later"), plain, 1},
		{"a taint that passes", tainted("karpenter.sh/disrupted"), plain, 0},
	} {
		today := clusterOf(t, "--trace", dumpOf(t, c.nodes, c.pods.pods()))
		if len(today.Stay) != c.stay || c.stay == 0 && len(today.Pools[0].Taints) > 0 {
			t.Errorf("%s: stay %+v, pools %+v; want %d reasons", c.name, today.Stay, today.Pools, c.stay)
		}
	}
}

// The order of taints makes no pools.
func TestOrderOfTaints(t *testing.T) {
	nodes := nodesOf("m6i.xlarge", 2)
	for i, order := range [][]string{{"a", "b"}, {"b", "a"}} {
		var taints []any
		for _, key := range order {
			taints = append(taints, object{"key": key, "effect": "NoSchedule"})
		}
		nodes[i].(object)["spec"].(object)["taints"] = taints
	}
	pods := workload{name: "x", replicas: 2, nodes: 2, requests: request("150m", "200Mi"), spec: object{"tolerations": []any{object{"operator": "Exists"}}}}
	if pools := clusterOf(t, "--trace", dumpOf(t, nodes, pods.pods())).Pools; len(pools) != 1 {
		t.Errorf("pools %+v, want one", pools)
	}
}

// What pods demand of their VM is kept by the plan, and by the bound if it says that no plan costs
// less. m6i.large costs 0.096 $/h, m6i.xlarge 0.192, m6i.2xlarge 0.384.
func TestDemandsOfAVM(t *testing.T) {
	small := request("150m", "200Mi")
	for _, c := range []struct {
		name         string
		nodes        []any
		pods         []workload
		split, bound string
	}{
		{"a port of two Deployments", nodesOf("m6i.xlarge", 4), []workload{
			{name: "in", replicas: 2, nodes: 2, requests: small, container: port(7070, nil)},
			{name: "out", replicas: 2, from: 2, nodes: 2, requests: small, container: port(7070, nil)}}, "0.384", "0.384"},
		{"a port of two protocols and of two addresses", nodesOf("m6i.xlarge", 4), []workload{
			{name: "tcp", replicas: 1, requests: small, container: port(7070, object{"hostIP": "10.1.1.1"})},
			{name: "udp", replicas: 1, from: 1, requests: small, container: port(7070, object{"protocol": "UDP"})},
			{name: "other", replicas: 1, from: 2, requests: small, container: port(7070, object{"hostIP": "10.1.1.2"})}}, "0.096", "0.096"},
		{"an address, and all of them", nodesOf("m6i.xlarge", 4), []workload{
			{name: "one", replicas: 1, requests: small, container: port(7070, object{"hostIP": "10.1.1.1"})},
			{name: "all", replicas: 1, from: 1, requests: small, container: port(7070, nil)}}, "0.192", "0.096"},
		{"ports of containers with restart rules of their own", nodesOf("m6i.xlarge", 2), []workload{
			{name: "in", replicas: 2, nodes: 2, requests: small, container: object{"restartPolicy": "OnFailure", "ports": port(7070, nil)["ports"]}}}, "0.192", "0.192"},
		{"init containers that need more than the first container", nodesOf("m6i.2xlarge", 3), []workload{
			{name: "pair", replicas: 3, nodes: 3, requests: []object{{"cpu": "1", "memory": "1Gi"}, {"cpu": "3200m", "memory": "1Gi"}}, spec: object{
				"initContainers": []any{object{"name": "i", "resources": object{"requests": object{"cpu": "4200m"}}}}}}}, "1.152", "1.152"},
		{"zones that drivers of volumes name", relabelled(nodesOf("m6i.xlarge", 2), "topology.kubernetes.io/zone", "topology.ebs.csi.aws.com/zone", "a", "b"), []workload{
			{name: "web", replicas: 2, nodes: 2, requests: small}}, "0.192", "0.192"},
		{"ports with hostNetwork, which need no hostPort", nodesOf("m6i.xlarge", 3), []workload{
			{name: "net", replicas: 3, nodes: 3, requests: small, container: object{"ports": []any{object{"containerPort": 7443}}}, spec: object{"hostNetwork": true}}}, "0.288", "0.288"},
		{"anti-affinity of one side only", nodesOf("m6i.xlarge", 4), []workload{
			{name: "pg", labels: "app=pg,class=disk", replicas: 2, nodes: 2, requests: small, spec: antiAffinity("class", "disk", nil)},
			{name: "memo", labels: "class=disk", replicas: 2, from: 2, nodes: 2, requests: small}}, "0.288", "0.192"},
		{"anti-affinity to all namespaces", nodesOf("m6i.xlarge", 2), []workload{
			{name: "pg", namespace: "red", labels: "app=pg", replicas: 1, requests: small, spec: antiAffinity("app", "pg", object{"namespaceSelector": object{}})},
			{name: "pg", namespace: "blue", labels: "app=pg", replicas: 1, from: 1, requests: small, spec: antiAffinity("app", "pg", object{"namespaceSelector": object{}})}}, "0.192", "0.192"},
		{"anti-affinity to a named namespace", nodesOf("m6i.xlarge", 2), []workload{
			{name: "pg", namespace: "red", labels: "app=pg", replicas: 1, requests: small, spec: antiAffinity("app", "pg", object{"namespaces": []string{"blue"}})},
			{name: "pg", namespace: "blue", labels: "app=pg", replicas: 1, from: 1, requests: small}}, "0.192", "0.096"},
		{"anti-affinity within the revision only", nodesOf("m6i.xlarge", 4), []workload{
			{name: "web-a", labels: "app=web,rev=a", replicas: 2, nodes: 2, requests: small, spec: antiAffinity("app", "web", object{"matchLabelKeys": []string{"rev"}})},
			{name: "web-b", labels: "app=web,rev=b", replicas: 2, from: 2, nodes: 2, requests: small, spec: antiAffinity("app", "web", object{"matchLabelKeys": []string{"rev"}})}}, "0.192", "0.192"},
		{"seven replicas spread over six nodes", nodesOf("m6i.xlarge", 6), []workload{
			{name: "web", labels: "app=web", replicas: 7, nodes: 6, requests: request("850m", "900Mi"), spec: spreadBy("app", "web", nil)}}, "0.384", "0.384"},
		{"two replicas on each of six nodes", nodesOf("m6i.xlarge", 6), []workload{
			{name: "web", labels: "app=web", replicas: 12, nodes: 6, requests: request("850m", "900Mi"), spec: spreadBy("app", "web", nil)}}, "0.576", "0.576"},
		{"a spread with another workload on more VMs", nodesOf("m6i.xlarge", 6), []workload{
			{name: "web", labels: "app=web", replicas: 2, nodes: 2, requests: small, spec: spreadBy("app", "web", nil)},
			{name: "job", replicas: 4, from: 2, nodes: 4, requests: request("1700m", "1Gi")}}, "0.384", "0.384"},
		{"a skew of two", nodesOf("m6i.xlarge", 4), []workload{
			{name: "web", labels: "app=web", replicas: 4, nodes: 4, requests: small, spec: spreadBy("app", "web", object{"maxSkew": 2})}}, "0.096", "0.096"},
		{"revisions that count apart", nodesOf("m6i.xlarge", 4), []workload{
			{name: "web-a", labels: "app=web,rev=a", replicas: 2, nodes: 2, requests: small, spec: spreadBy("app", "web", object{"matchLabelKeys": []string{"rev"}, "minDomains": 2})},
			{name: "web-b", labels: "app=web,rev=b", replicas: 2, from: 2, nodes: 2, requests: small, spec: spreadBy("app", "web", object{"matchLabelKeys": []string{"rev"}, "minDomains": 2})}}, "0.192", ""},
		{"ephemeral storage", nodesOf("m6i.xlarge", 4), []workload{
			{name: "tmp", replicas: 4, nodes: 4, requests: []object{{"cpu": "100m", "memory": "100Mi", "ephemeral-storage": "9Gi"}}}}, "0.384", ""},
		{"a directory that containers share", nodesOf("m6i.2xlarge", 2), []workload{
			{name: "pair", replicas: 2, nodes: 2, requests: []object{{"cpu": "3800m", "memory": "13Gi"}, {"cpu": "1800m", "memory": "6Gi", "ephemeral-storage": "1Gi"}}, spec: object{
				"containers": []any{
					object{"name": "a", "resources": object{"requests": object{"cpu": "3800m", "memory": "13Gi"}}, "volumeMounts": []any{object{"name": "v", "mountPath": "/v"}}},
					object{"name": "b", "resources": object{"requests": object{"cpu": "1800m", "memory": "6Gi"}}, "volumeMounts": []any{object{"name": "v", "mountPath": "/v"}}}},
				"volumes": []any{object{"name": "v", "emptyDir": object{"medium": "Memory"}}}}}}, "0.768", "0.768"},
	} {
		objects := [][]any{c.nodes}
		for _, w := range c.pods {
			objects = append(objects, w.pods())
		}
		today := clusterOf(t, "--trace", dumpOf(t, objects...))
		if got := fmt.Sprint(today.Split); got != c.split || len(today.Stay) > 0 || c.bound != "" && fmt.Sprint(today.Bound) != c.bound || today.Bound > today.Split {
			t.Errorf("%s: split %s, bound %s, want %s, %s; stay %+v; steps %+v", c.name, today.Split, today.Bound, c.split, c.bound, today.Stay, today.Steps)
		}
	}
}

// What plans do not honour, or what the dump does not tell, keeps the node of the pod and is named.
func TestDemandsThatHoldNodes(t *testing.T) {
	small := request("150m", "200Mi")
	claim := object{"volumes": []any{object{"name": "d", "persistentVolumeClaim": object{"claimName": "d"}}}}
	volume := func(mode, key, value string) []any {
		return []any{object{"kind": "PersistentVolume", "metadata": object{"name": "v"}, "spec": object{"accessModes": []string{mode}, "claimRef": object{"namespace": "store", "name": "d"},
			"nodeAffinity": object{"required": object{"nodeSelectorTerms": []any{object{"matchExpressions": []any{object{"key": key, "operator": "In", "values": []string{value}}}}}}}}}}
	}
	pair := []workload{{name: "web", replicas: 2, nodes: 2, requests: small}}
	for _, c := range []struct {
		name string
		pods []workload
		more []any
		want string // in a warning, or in the reason for which the node stays
	}{
		{"affinity by node", []workload{{name: "near", replicas: 1, requests: small, spec: object{"affinity": object{"podAffinity": object{"requiredDuringSchedulingIgnoredDuringExecution": []any{object{"topologyKey": "kubernetes.io/hostname", "labelSelector": object{"matchLabels": object{"app": "web"}}}}}}}}}, nil, "! Not honoured: pod affinity by node, of 1 pod"},
		{"another scheduler", []workload{{name: "x", replicas: 1, requests: small, spec: object{"schedulerName": "volcano"}}}, nil, "! Not honoured: another scheduler"},
		{"a field of a later version", []workload{{name: "x", replicas: 1, requests: small, spec: object{"placementPolicy": object{"rack": "same"}}}}, nil, "! Not honoured: fields that this version does not know: spec.placementPolicy"},
		{"a field of a later version within another", []workload{{name: "x", replicas: 1, labels: "app=x", requests: small, spec: spreadBy("app", "x", object{"weightBy": "cpu"})}}, nil, "spec.topologySpreadConstraints[0].weightBy"},
		{"namespaces by labels that are unknown", []workload{{name: "x", replicas: 1, labels: "app=x", requests: small, spec: antiAffinity("app", "x", object{"namespaceSelector": object{"matchLabels": object{"team": "red"}}})}}, nil, "add namespaces to kubectl get"},
		{"a volume that the dump lacks", []workload{{name: "x", replicas: 1, requests: small, spec: claim}}, nil, "add pv to kubectl get"},
		{"a volume of pods of one node", []workload{{name: "x", replicas: 2, requests: small, spec: claim}}, volume("ReadWriteOnce", "topology.kubernetes.io/zone", "us-east-1b"), "! Not honoured: a volume that pods share and only one node can attach, of 2 pods"},
		{"a local volume", []workload{{name: "x", replicas: 1, requests: small, spec: claim}}, volume("ReadWriteOnce", "kubernetes.io/hostname", "vm-0"), "a pod may run on this node only"},
		{"a port that a DaemonSet has", []workload{{name: "agent", kind: "DaemonSet", replicas: 2, from: 1, nodes: 2, requests: small, container: port(9900, nil)}, {name: "x", replicas: 1, requests: small, container: port(9900, nil)}}, nil, "may not share a VM with DaemonSet store/agent"},
		{"a local volume, and one that was released", []workload{{name: "x", replicas: 1, requests: small, spec: claim}}, append(volume("ReadWriteOnce", "kubernetes.io/hostname", "vm-0"),
			object{"kind": "PersistentVolume", "metadata": object{"name": "old"}, "spec": object{"claimRef": object{"namespace": "store", "name": "d"}}, "status": object{"phase": "Released"}}), "a pod may run on this node only"},
		{"a disk without a claim", []workload{{name: "x", replicas: 1, requests: small, spec: object{"volumes": []any{object{"name": "d", "awsElasticBlockStore": object{"volumeID": "vol-1"}}}}}}, nil, "! Not honoured: disks without a claim"},
	} {
		objects := [][]any{nodesOf("m6i.xlarge", 3), c.more}
		for _, w := range append(c.pods, pair...) {
			objects = append(objects, w.pods())
		}
		dump := dumpOf(t, objects...)
		text := strings.Join(strings.Fields(must(t, "--trace", dump)), " ")
		if !strings.Contains(text, c.want) {
			t.Errorf("%s: want %q in:\n%s", c.name, c.want, text)
		}
		if today := clusterOf(t, "--trace", dump); len(today.Stay) != 1 || today.Stay[0].Nodes != 1 || named(today, "store/x-0") || named(today, "store/near-0") {
			t.Errorf("%s: nodes that stay %+v; want that of the pod", c.name, today.Stay)
		}
	}
}

// named reports whether a plan places a pod.
func named(t *summary.Today, pod string) bool {
	return slices.ContainsFunc(t.Pools, func(p summary.PoolCost) bool {
		return slices.ContainsFunc(p.Placement, func(vm summary.PlacedVM) bool {
			return slices.ContainsFunc(vm.Pods, func(p summary.PlacedPod) bool { return p.Pod == pod })
		})
	})
}

// A VM has no more volumes than a node can attach.
func TestVolumesOfAVM(t *testing.T) {
	for _, c := range []struct {
		limit int
		vms   int
	}{{7, 4}, {24, 1}, {0, 4}} { // unknown: as many as a node has today
		objects := [][]any{nodesOf("m6i.2xlarge", 4)}
		for i := range 12 {
			name := fmt.Sprint("d-", i)
			w := workload{name: fmt.Sprint("db", i), replicas: 1, from: i % 4, requests: request("20m", "50Mi"), spec: object{"volumes": []any{
				object{"name": "a", "persistentVolumeClaim": object{"claimName": name + "a"}}, object{"name": "b", "persistentVolumeClaim": object{"claimName": name + "b"}}}}}
			objects = append(objects, w.pods())
			for _, v := range []string{"a", "b"} {
				objects = append(objects, []any{object{"kind": "PersistentVolume", "metadata": object{"name": "pv-" + name + v}, "spec": object{"accessModes": []string{"ReadWriteOnce"}, "claimRef": object{"namespace": "store", "name": name + v}}}})
			}
		}
		for i := range 4 {
			objects = append(objects, []any{object{"kind": "CSINode", "metadata": object{"name": fmt.Sprint("vm-", i)}, "spec": object{"drivers": []any{object{"name": "ebs.csi.aws.com", "allocatable": object{"count": c.limit}}}}}})
		}
		today := clusterOf(t, "--trace", dumpOf(t, objects...))
		n := 0
		for _, count := range today.Pools[0].PackedVMs {
			n += count
		}
		if n != c.vms || len(today.Stay) > 0 {
			t.Errorf("%d volumes on a node: %d VMs, want %d; %+v", c.limit, n, c.vms, today.Stay)
		}
	}
}

// Where not all pods that a spread counts demand it, the others may be anywhere: today's nodes, with three on two of
// them, cost no less than the bound. Those that all demand it would be on six.
func TestSpreadThatSomePodsDemand(t *testing.T) {
	nodes := relabelled(nodesOf("m6i.xlarge", 8), "", "node.kubernetes.io/instance-type", "r4", "r4", "c4", "c4", "c4", "c4", "c4", "c4")
	for _, n := range nodes[2:] {
		n.(object)["status"].(object)["allocatable"].(object)["memory"] = "4Gi"
	}
	web := workload{name: "web", labels: "app=web", replicas: 6, nodes: 2, requests: request("500m", "4500Mi"), spec: spreadBy("app", "web", nil)}
	others := workload{name: "x", replicas: 6, from: 2, nodes: 6, requests: request("3800m", "200Mi")}.pods()
	some := web.pods()
	for _, p := range some[1:] {
		delete(p.(object)["spec"].(object), "topologySpreadConstraints")
	}
	models := file(t, "own.csv", "model,vcpu,memory,price,pods\nr4,4,16 GiB,0.4,\nc4,4,4 GiB,0.1,\n")
	for illegal, pods := range map[bool][]any{false: some, true: web.pods()} {
		r := decode(t, must(t, "--trace", dumpOf(t, nodes, pods, others), "--catalogue", models, "--json"))
		if r.Today.Now.String() != "1.400" || (r.Bound > r.Today.Now) != illegal || r.Today.Split > r.Today.Now {
			t.Errorf("today %s, bound %s, plan %s; today is illegal: %v", r.Today.Now, r.Bound, r.Today.Split, illegal)
		}
	}
}

// Splits are not the first advice: they need Hostlo. Each step says what the cluster costs then.
func TestSplitsAreApart(t *testing.T) {
	pairs := workload{name: "pair", replicas: 4, nodes: 4, requests: []object{{"cpu": "3800m", "memory": "13Gi"}, {"cpu": "1800m", "memory": "6Gi"}}}
	text := strings.Join(strings.Fields(must(t, "--trace", dumpOf(t, nodesOf("m6i.2xlarge", 4), pairs.pods()))), " ")
	if !strings.Contains(text, "- Do nothing with whole pods: no plan that was found costs less. - With Hostlo, on VMs of one host: in us-east-1b, replace 4 m6i.2xlarge by") || strings.Contains(text, "Do next") || !strings.Contains(text, "; you pay 1.152 $/h then.") {
		t.Errorf("the advice:\n%s", text)
	}
}

// Without pools, too, a pod that may not be next to a DaemonSet is named.
func TestDaemonSetsWithoutPools(t *testing.T) {
	small := request("150m", "200Mi")
	dump := dumpOf(t, nodesOf("m6i.xlarge", 3), workload{name: "agent", kind: "DaemonSet", replicas: 2, from: 1, nodes: 2, requests: small, container: port(9900, nil)}.pods(),
		workload{name: "x", replicas: 1, requests: small, container: port(9900, nil)}.pods())
	if text := strings.Join(strings.Fields(must(t, "--trace", dump, "--owner", "namespace")), " "); !strings.Contains(text, "! Not honoured: 1 pods may not share a VM with a DaemonSet") {
		t.Errorf("no warning:\n%s", text)
	}
}
