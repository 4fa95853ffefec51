//go:build kubernetes

package e2e

import (
	"fmt"
	"slices"
	"strings"

	"unnest.io/unnest/internal/measure/workload"
)

// localhostLoad is a load between the containers of a pod on 127.0.0.1, and the metric that it is for.
type localhostLoad struct {
	name, metric string
	tool         string
	params       workload.Params
	port         int
}

// podLoad is where client and server of a pod run: nodes, and the processes whose network namespace they enter.
type podLoad struct{ client, clientPID, server, serverPID string }

// serveIn starts the servers of loads next to the container back of a pod, which is in the pod last, for clients next to its container front. Both
// are tools of their nodes. The servers end with the node.
func (k *kubernetes) serveIn(pod, last string, loads []localhostLoad) (p podLoad) {
	k.t.Helper()
	pid := func(pod, container string) (node, pid string) {
		node = k.ctl("get", "pod", pod, "--output=jsonpath={.spec.nodeName}")
		id := k.ctl("get", "pod", pod, `--output=jsonpath={.status.containerStatuses[?(@.name=="`+container+`")].containerID}`)
		return node, strings.TrimSpace(k.onNode(node, "sh", "-c", "ctr --namespace k8s.io tasks list | grep "+strings.TrimPrefix(id, "containerd://")+" | { read -r id pid rest; echo $pid; }"))
	}
	p.client, p.clientPID = pid(pod, "front")
	p.server, p.serverPID = pid(last, "back")
	for _, l := range loads {
		w, err := workload.Lookup(l.tool)
		k.check(err)
		server := strings.Join(w.Server(l.params, workload.Endpoint{Address: "127.0.0.1", Port: l.port}), " ")
		log := fmt.Sprintf("/tmp/%s-%s.log", pod, l.tool)
		k.onNode(p.server, "sh", "-c", fmt.Sprintf("setsid nsenter --net=/proc/%s/ns/net %s >%s 2>&1 </dev/null &", p.serverPID, server, log))
		k.eventually(l.tool+" serves", func() bool { return strings.Contains(k.onNode(p.server, "cat", log), w.Ready()) })
	}
	return p
}

// loadIn runs a client of a load, and returns its metric.
func (k *kubernetes) loadIn(p podLoad, l localhostLoad) float64 {
	k.t.Helper()
	value, err := k.tryLoad(p, l)
	k.check(err)
	return value
}

// tryLoad is loadIn. It fails if nothing is answered.
func (k *kubernetes) tryLoad(p podLoad, l localhostLoad) (float64, error) {
	k.t.Helper()
	w, err := workload.Lookup(l.tool)
	k.check(err)
	client := strings.Join(w.Client(l.params, workload.Endpoint{Address: "127.0.0.1", Port: l.port}), " ")
	out := k.onNode(p.client, "sh", "-c", fmt.Sprintf("nsenter --net=/proc/%s/ns/net %s || :", p.clientPID, client))
	parsed, err := w.Parse(l.params, []byte(out))
	if err != nil {
		return 0, fmt.Errorf("%w:\n%s", err, out)
	}
	i := slices.IndexFunc(parsed.Values, func(v workload.Value) bool { return v.Metric == l.metric })
	if i < 0 {
		return 0, fmt.Errorf("%s has no %s:\n%s", l.tool, l.metric, out)
	}
	return parsed.Values[i].Value, nil
}
