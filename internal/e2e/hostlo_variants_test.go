//go:build profile

package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// podVariant is a pod with a changed setup.
type podVariant struct {
	name          string
	before, after string // run in the guests, before and after the fraction is created; may be empty
	host          string // run on the host; %s is the TAP of the segment; may be empty
}

// podVariants are changes that might shorten round trips.
var podVariants = []podVariant{
	{name: "untx", before: "echo N >/sys/module/virtio_net/parameters/napi_tx", after: "echo Y >/sys/module/virtio_net/parameters/napi_tx"},
	{name: "noqueue", host: "tc qdisc replace dev %s root noqueue"},
	{name: "noqueues", after: "ip netns exec noqueues tc qdisc replace dev eth0 root noqueue"},
}

// variantTitles are the names of the variants in the report.
var variantTitles = map[string]string{
	"untx":     "no interrupts for sent frames (napi_tx=N)",
	"noqueue":  "no queueing discipline on the TAP",
	"noqueues": "none on the endpoints",
}

func (p *profile) addVariants() {
	for _, v := range podVariants {
		p.addPod(v)
	}
	one, two := p.in[0], p.in[1]
	p.addVariant(hostloWay+", each QEMU on a processor of its own", one.hops(podName), two.hops(podName), "127.0.0.1:9011", p.pin)
	for _, w := range []struct {
		name           string
		client, server *hopper
		address        string
		change         func(on bool)
	}{
		{"SameNode", one.hops(single), one.hops(single), "127.0.0.1:9012", p.poll},
		{hostloWay, one.hops(podName), two.hops(podName), "127.0.0.1:9012", p.poll},
		{hostloWay + ", each QEMU on a processor of its own", one.hops(podName), two.hops(podName), "127.0.0.1:9013", func(on bool) { p.poll(on); p.pin(on) }},
		{"guest to guest", one.hops(""), two.hops(""), two.TenantIP + ":9012", p.poll},
	} {
		// The socket of the server polls, too, if it is opened meanwhile.
		p.poll(true)
		p.addVariant(fmt.Sprintf("%s, sockets poll for %d µs (net.core.busy_read)", w.name, busyRead), w.client, w.server, w.address, w.change)
		p.poll(false)
	}
}

// addPod creates another pod and adds its way.
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
	p.addVariant(hostloWay+", "+variantTitles[v.name], p.in[0].hops(v.name), p.in[1].hops(v.name), "127.0.0.1:9010", func(bool) {})
}

// addVariant adds a way that is measured while change is on.
func (p *profile) addVariant(name string, client, server *hopper, address string, change func(on bool)) {
	p.t.Helper()
	p.add(&way{
		name: name, client: client, server: server, address: address, variant: true,
		waypoints: []waypoint{{client, "sent", ""}, {server, "served", ""}, {client, "answered", ""}},
		prepare:   func() { change(true) }, undo: func() { change(false) },
	})
}

// busyRead is how long a waiting socket polls the NIC before it sleeps, in µs.
const busyRead = 500

// poll switches polling on or off for all sockets that are opened in the guests from now on.
func (p *profile) poll(on bool) {
	p.t.Helper()
	for _, m := range p.in {
		m.run(fmt.Sprintf("echo %d >/proc/sys/net/core/busy_read", map[bool]int{true: busyRead}[on]))
	}
}

// pin restricts the threads of the k-th guest's QEMU to the k-th processor, or lets them run on
// all processors.
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
