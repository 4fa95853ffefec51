//go:build kubernetes

package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostd/status"
	"unnest.io/unnest/internal/testbed/cluster"
)

const (
	// splitPodsAtOnce is how many split pods come and go at the same time.
	splitPodsAtOnce = 8
	// splitPorts is how many volumes a node can have at the same time.
	splitPorts = 2
	// splitPatience bounds a step of a pod's life, while what serves it is killed.
	splitPatience = 6 * time.Minute
	// splitPause is the longest pause between two kills.
	splitPause = 16 * time.Second
)

// splitRounds is a cluster in which split pods come and go while what serves them is killed.
type splitRounds struct {
	*kubernetes
	view  *cluster.Cluster
	seed  uint64
	kills *rand.Rand    // of the test's goroutine
	ports chan struct{} // a pod with a volume takes one of each node: without both it would keep others waiting
	done  atomic.Int64

	mu    sync.Mutex
	count map[string]int // of kills and rounds, by kind
}

// Split pods are created, used, and deleted UNNEST_ROUNDS times (6), several at a time, some before they run, some by the loss of their
// companion and some by force, while the controller, the daemon, kubelets, the DaemonSet's pods and the drivers of volumes are
// killed at random moments. A pod that is ready is whole. At the end nothing is left of them in the API server, on the host and in the nodes.
// UNNEST_SEED draws the same pods and kills again.
func TestKubernetesSplitRounds(t *testing.T) {
	number := func(variable string, otherwise int64) uint64 {
		n, err := strconv.ParseUint(cmp.Or(os.Getenv(variable), fmt.Sprint(otherwise)), 10, 32)
		if err != nil || n == 0 {
			t.Fatalf("%s=%s: want a number from 1 on", variable, os.Getenv(variable))
		}
		return n
	}
	r := &splitRounds{seed: number("UNNEST_SEED", 1+time.Now().UnixNano()%1_000_000), count: map[string]int{}, ports: make(chan struct{}, splitPorts)}
	rounds := int64(number("UNNEST_ROUNDS", 6))
	t.Logf("seed %d: UNNEST_SEED=%[1]d draws the same pods and kills again", r.seed)
	r.kills = rand.New(rand.NewPCG(r.seed, 0))
	r.kubernetes = newKubernetes(t, "--split-pods", fmt.Sprintf("--shares=%d", splitPorts))
	var before string
	for _, s := range []struct {
		name string
		run  func()
	}{
		{"up", r.start},
		{"the DaemonSet is installed", func() { r.installPlugins() }},
		// The first pods make tables and directories of nodes that stay.
		{"the first pods", func() { r.splitDeployment(); r.splitDeleted(); r.settle(); before = r.inventory() }},
		{"rounds", func() { r.run(rounds) }},
		{"nothing is left", func() { r.nothingLeft(before) }},
		{"a pod is split afterwards", func() {
			if err := r.round(-1, rand.New(rand.NewPCG(r.seed, 1))); err != nil {
				r.t.Error(err)
			}
		}},
		{"down", r.down},
	} {
		if !r.step(s.name, s.run) {
			return
		}
	}
}

// run makes all rounds. Meanwhile it kills, each kind once before any comes again.
func (r *splitRounds) run(rounds int64) {
	var workers sync.WaitGroup
	defer workers.Wait() // also when a kill fails
	var next atomic.Int64
	for range min(splitPodsAtOnce, rounds) {
		workers.Go(func() {
			for n := next.Add(1); n <= rounds && !r.whole.Failed(); n = next.Add(1) {
				begin := time.Now()
				if err := r.round(n, rand.New(rand.NewPCG(r.seed, uint64(n)))); err != nil {
					r.t.Errorf("seed %d, round %d: %v", r.seed, n, err)
				}
				r.t.Logf("%s: round %d has ended after %v, %d have", time.Now().Format(time.TimeOnly), n, time.Since(begin).Round(time.Second), r.done.Add(1))
			}
		})
	}
	all := []struct {
		name string
		do   func() bool
	}{
		{"kill of the controller", r.killController},
		{"kill of the daemon", func() bool { r.killDaemon(); r.pause(2 * time.Second); r.startDaemon(); return true }},
		{"kill of a kubelet", func() bool { return r.killOn("busybox pidof kubelet") }},
		{"kill of the DaemonSet's process", func() bool { return r.killOn("grep -lsz '^/unnest-cni$' /proc/[0-9]*/cmdline | cut -d/ -f3") }},
		{"deletion of the DaemonSet's pods", func() bool {
			r.ctl("--namespace=unnest-system", "delete", "pods", "--selector=app=unnest-cni", "--wait=false")
			return true
		}},
		{"kill of a driver of volumes", func() bool { return r.killOn("busybox pidof unnest-volume") }},
	}
	var order []int
	for total := 0; (r.done.Load() < rounds || total < len(all)) && !r.whole.Failed(); r.pause(splitPause) {
		if len(order) == 0 {
			order = r.kills.Perm(len(all))
		}
		if kill := all[order[0]]; kill.do() {
			r.t.Logf("%s: %s", time.Now().Format(time.TimeOnly), kill.name)
			r.add(kill.name)
			total++
		}
		order = order[1:]
	}
	workers.Wait()
	r.t.Logf("seed %d, %d of %d rounds: %v", r.seed, r.done.Load(), rounds, r.count)
}

func (r *splitRounds) add(kind string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count[kind]++
}

func (r *splitRounds) pause(most time.Duration) {
	time.Sleep(time.Duration(r.kills.Int64N(int64(most))))
}

// killController kills the controller, which `unnest cluster repair` starts again.
func (r *splitRounds) killController() bool {
	pid, err := r.splitController()
	r.check(err)
	r.check(unix.Kill(pid, unix.SIGKILL))
	r.eventually("the controller ends", func() bool { return ended(pid) })
	r.pause(4 * time.Second)
	mustRun(r.t, r.unnest, "cluster", "repair")
	return true
}

// killOn kills the processes of a node whose numbers a command prints, if it prints any: what was killed last may not be back yet.
func (r *splitRounds) killOn(pids string) bool {
	node := []string{"node1", "node2"}[r.kills.IntN(2)]
	_, err := r.view.OnNode(r.t.Context(), node, "sh", "-c", "kill -9 $("+pids+")")
	return err == nil
}

// try calls kubectl, and kills it after splitPatience.
func (r *splitRounds) try(in []byte, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), splitPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.kubectl, append([]string{"--kubeconfig=" + r.config}, args...)...)
	var out, problem bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &problem
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, problem.String())
	}
	return out.String(), err
}

// again calls f until it succeeds, for splitPatience.
func again(f func() error) error {
	for end := time.Now().Add(splitPatience); ; time.Sleep(500 * time.Millisecond) {
		err := f()
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

// round is the life of one split pod.
func (r *splitRounds) round(n int64, draw *rand.Rand) error {
	name := fmt.Sprintf("round%d", n)
	own, kind := []string{"pod/" + name, "pod/" + name + "-f1"}, "plain"
	template := splitTemplate(nil)
	pod := map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name, "annotations": template["metadata"].(map[string]any)["annotations"]}, "spec": template["spec"]}
	if draw.IntN(4) == 0 {
		pod, kind = volumePod(name), "with a volume"
		r.ports <- struct{}{}
		defer func() { <-r.ports }()
	}
	text, err := json.Marshal(pod)
	if err != nil {
		return err
	}
	// Without a controller the webhook does not answer. A create whose answer is lost may have been done.
	err = again(func() error {
		_, err := r.try(text, "create", "--filename=-")
		if err != nil && strings.Contains(err.Error(), "AlreadyExists") {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	end := []string{"delete", own[0], "--wait=false"}
	switch draw.IntN(6) {
	case 0:
		kind += ", deleted before it runs"
		time.Sleep(time.Duration(draw.Int64N(int64(15 * time.Second))))
	case 1:
		kind += ", deleted by force before it runs"
		time.Sleep(time.Duration(draw.Int64N(int64(15 * time.Second))))
		end = append(end, "--force", "--grace-period=0")
	case 2:
		kind += ", deleted by force"
		end = append(end, "--force", "--grace-period=0")
		err = r.ready(own, name, kind)
	case 3:
		kind += ", whose companion is deleted"
		end[1] = own[1]
		err = r.ready(own, name, kind)
	default:
		kind += ", deleted"
		err = r.ready(own, name, kind)
	}
	if err != nil {
		return fmt.Errorf("a pod %s: %w", kind, err)
	}
	if _, err := r.try(nil, end...); err != nil {
		return fmt.Errorf("a pod %s: %w", kind, err)
	}
	for _, fraction := range own {
		if _, err := r.try(nil, "wait", "--for=delete", "--timeout="+splitPatience.String(), fraction); err != nil {
			return fmt.Errorf("a pod %s is left in part: %w", kind, err)
		}
	}
	r.add(kind)
	return nil
}

// ready waits until the pod is ready, and checks that it is whole: both fractions run and have one localhost, or one volume.
func (r *splitRounds) ready(own []string, name, kind string) error {
	if _, err := r.try(nil, "wait", "--for=condition=Ready", "--timeout="+splitPatience.String(), own[0]); err != nil {
		return err
	}
	for i, of := range [][2]string{{"8081", "back"}, {"8080", "front"}} {
		script, want := "busybox timeout 60 wget -q -O - http://127.0.0.1:"+of[0]+"/", of[1]+"\n"
		if strings.HasPrefix(kind, "with") {
			script, want = "cat /data/prepared", "prepared\n"
		}
		err := again(func() error { // a kubelet that is killed takes the connection with it
			got, err := r.try(nil, "exec", strings.TrimPrefix(own[i], "pod/"), "--", "sh", "-c", script)
			if err == nil && got != want {
				err = fmt.Errorf("in fraction %d of %s: got %q, want %q", i, name, got, want)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// settle waits until all that was killed serves again.
func (r *splitRounds) settle() {
	mustRun(r.t, r.unnest, "cluster", "repair")
	r.ctl("--namespace=unnest-system", "rollout", "status", "daemonset/unnest-cni", podLimit)
	r.ctl("wait", "--for=condition=Ready", "nodes", "--all", podLimit)
	var err error
	r.view, err = cluster.View()
	r.check(err)
	for _, node := range []string{"node1", "node2"} {
		r.eventually("the pool of "+node+" is full", func() bool { s := r.guestStatus(node); return s.Pool == s.PoolTarget })
	}
}

// nodeInventory prints what pods have in a node: the node's own NICs are devices.
const nodeInventory = `for l in /sys/class/net/*; do [ -e $l/device ] || echo "link ${l##*/}"; done
ls /run/netns /var/lib/cni/results 2>/dev/null
grep -c /kubelet/pods/ /proc/mounts; grep virtiofs /proc/mounts; ls /var/lib/kubelet/pods | busybox wc -l
ls /var/lib/kubelet/plugins/volumes.unnest.io/published 2>/dev/null
find /run/unnest /var/lib/unnest -type f -path '*pending*' 2>/dev/null
nft list tables | grep unnest; ctr -n k8s.io tasks list -q | busybox wc -l; :`

// inventory says what API server, daemon, host and nodes have of pods.
func (r *splitRounds) inventory() string {
	var b strings.Builder
	say := func(what string, values ...any) { fmt.Fprintln(&b, append([]any{what + ":"}, values...)...) }
	say("API server", r.ctl("get", "pods,persistentvolumes,persistentvolumeclaims,volumeattachments", "--output=name"))
	s := r.status()
	slices.SortFunc(s.Guests, func(a, c status.Guest) int { return strings.Compare(a.Name, c.Name) })
	for _, g := range s.Guests {
		say("daemon, "+g.Name, g.Error, g.Attachments, "NICs,", g.SlotsFree+g.Pool, "free slots and in the pool,", g.SlotsQuarantined, "quarantined, shares", g.Shared)
	}
	for _, t := range s.Tenants {
		say("daemon, tenant "+t.Name, t.Attachments, "NICs,", t.AddressesInUse, "addresses,", t.Segments, "segments")
	}
	say("daemon, segments", s.Segments)
	say("host, volumes", r.volumes())
	say("host, links", strings.Count(mustRun(r.t, "nsenter", "--net="+r.fleet.Lab.HostNS(), "ip", "-o", "link"), "\n"))
	for _, node := range []string{"node1", "node2"} {
		out, err := r.view.OnNode(r.t.Context(), node, "sh", "-c", nodeInventory)
		say(node, string(out), err)
	}
	return b.String()
}

// nothingLeft waits until the cluster has what it had before the rounds. It says early what it waits for: a time limit may end the test.
func (r *splitRounds) nothingLeft(before string) {
	r.settle()
	var now string
	begin, said := time.Now(), ""
	for ; now != before; time.Sleep(time.Second) {
		now = r.inventory()
		switch waited := time.Since(begin); {
		case now == before || waited < splitPatience/6 || waited < splitPatience && now == said:
		case waited < splitPatience:
			said = now
			r.t.Logf("seed %d, after %v: before the rounds there was\n%s\nand now there is\n%s", r.seed, waited.Round(time.Second), before, now)
		default:
			r.t.Fatalf("seed %d: before the rounds there was\n%s\nand now there is\n%s", r.seed, before, now)
		}
	}
	r.t.Logf("before and after the rounds:\n%s", now)
}

// installPlugins runs the chart's DaemonSet, and returns the file of its manifest.
func (k *kubernetes) installPlugins() string {
	mustRun(k.t, k.unnest, "cluster", "load", filepath.Join(k.binaries, "images", "unnest-cni.tar"))
	manifest, err := os.ReadFile("../../deploy/kubernetes/unnest.yaml")
	k.check(err)
	// The nodes have a network configuration, which stays the first.
	manifest = bytes.ReplaceAll(manifest, []byte("path: /opt/cni/bin"), []byte("path: /usr/lib/cni"))
	path := filepath.Join(k.whole.TempDir(), "unnest.yaml")
	k.check(os.WriteFile(path, manifest, 0o600))
	k.ctl("apply", "--filename="+path)
	k.ctl("--namespace=unnest-system", "rollout", "status", "daemonset/unnest-cni", podLimit)
	return path
}
