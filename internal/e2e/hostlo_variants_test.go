//go:build profile

package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// podVariant is a pod that is set up otherwise than others.
type podVariant struct {
	name          string
	before, after string // run in the guests, before and after the fraction is made; may be empty
	host          string // run on the host; %s is the segment's TAP; may be empty
}

// podVariants are what somebody might do for shorter round trips.
var podVariants = []podVariant{
	{name: "untx", before: "echo N >/sys/module/virtio_net/parameters/napi_tx", after: "echo Y >/sys/module/virtio_net/parameters/napi_tx"},
	{name: "noqueue", host: "tc qdisc replace dev %s root noqueue"},
	{name: "noqueues", after: "ip netns exec noqueues tc qdisc replace dev eth0 root noqueue"},
}

// variantTitles are the variants' names in the report.
var variantTitles = map[string]string{
	"untx":     "no interrupts for sent frames (napi_tx=N)",
	"noqueue":  "no queueing discipline on the TAP",
	"noqueues": "none on the endpoints",
}

// busyPoll is for how long a socket that waits asks the NIC, in µs.
const busyPoll = 500

func (p *profile) addVariants() {
	for _, v := range podVariants {
		p.addPod(v)
	}
	p.addVariant(podName, fmt.Sprintf("sockets poll for %d µs (SO_BUSY_POLL)", busyPoll), ":9011", func(w *way) { w.busy = busyPoll })
	p.addVariant(podName, "each QEMU on a processor of its own", ":9012", func(w *way) {
		w.prepare, w.undo = func() { p.pin(true) }, func() { p.pin(false) }
	})
}

// addPod makes a pod more, and measures it.
func (p *profile) addPod(v podVariant) {
	p.t.Helper()
	keys := map[string]any{"segment": v.name, "key": "known-to-the-guests-of-" + v.name}
	for _, m := range p.in {
		m.run(v.before)
		m.fraction(v.name, keys)
		m.run(v.after)
	}
	if v.host != "" {
		args := append([]string{"--net=" + p.fleet.Lab.HostNS(), "sh", "-c"}, fmt.Sprintf(v.host, p.tap(v.name)))
		if out, err := exec.Command("nsenter", args...).CombinedOutput(); err != nil {
			p.t.Fatalf("%s: %v: %s", v.host, err, out)
		}
	}
	p.addVariant(v.name, variantTitles[v.name], ":9010", func(*way) {})
}

// addVariant measures a pod in another way.
func (p *profile) addVariant(pod, title, port string, change func(*way)) {
	p.t.Helper()
	client, server := p.in[0].hops(pod), p.in[1].hops(pod)
	w := &way{name: hostloWay + ", " + title, client: client, server: server, address: "127.0.0.1" + port, variant: true,
		stations: []station{{spot{client, "sent"}, ""}, {spot{server, "served"}, ""}, {spot{client, "answered"}, ""}}}
	change(w)
	p.add(w)
}

// pin keeps the threads of the k-th guest's QEMU on the k-th processor, or lets them
// run on all.
func (p *profile) pin(each bool) {
	p.t.Helper()
	var all unix.CPUSet
	p.check(unix.SchedGetaffinity(0, &all))
	for i, m := range p.in {
		set := all
		if each {
			set.Zero()
			set.Set(i)
		}
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", m.PID))
		p.check(err)
		for _, task := range tasks {
			if tid, err := strconv.Atoi(filepath.Base(task)); err == nil {
				_ = unix.SchedSetaffinity(tid, &set) // it may have ended
			}
		}
	}
}
