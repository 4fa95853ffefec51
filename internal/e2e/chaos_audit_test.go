//go:build chaos

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// audit waits until no worker is in a cycle. Then what the daemon and the host have is exactly
// what the pods were promised, and a pod cannot use more than that.
func (c *chaos) audit() {
	c.t.Helper()
	c.gate.Lock()
	defer c.gate.Unlock()
	begin := time.Now()
	for _, w := range c.pods { // a guest that was lost has no pods
		if up, err := w.open(); !up {
			c.fail("%s is down: %v", w.guest.options.Name, err)
			return
		}
	}
	c.finishReleases()
	c.settled("the daemon has what the pods have", c.disagreement)
	for _, w := range c.pods {
		for _, p := range w.pods {
			if err := w.verify(p); err != nil {
				c.fail("%v", err)
			}
			c.checkReports(w, p)
		}
		c.isolated(w)
	}
	c.count("audit")
	c.t.Logf("audit in %v: %d operations, %d faults", time.Since(begin).Round(time.Second), c.total("op:"), c.total("fault:"))
}

// settled fails unless nothing is wrong within chaosPatience.
func (c *chaos) settled(what string, wrong func() string) {
	c.t.Helper()
	for begin := time.Now(); ; time.Sleep(500 * time.Millisecond) {
		text := wrong()
		if text == "" {
			return
		}
		if time.Since(begin) > chaosPatience {
			c.fail("not within %v: %s: %s", chaosPatience, what, text)
			return
		}
	}
}

// finishReleases has every guest finish DELs during which the daemon was dead.
func (c *chaos) finishReleases() {
	for _, g := range c.guests {
		for _, kind := range []string{"brfusion", "hostlo"} {
			config := chaosNetwork()
			config["type"] = kind
			if kind == "hostlo" {
				delete(config, "ipam")
			}
			c.settled("STATUS of "+kind+" in "+g.options.Name, func() string {
				if _, err := g.node.plugin("STATUS", "none", config); err != nil {
					return err.Error()
				}
				return ""
			})
		}
	}
}

// disagreement compares the daemon's status and the host's links with the pods. A pod whose TAP
// was deleted may have its attachment or not.
func (c *chaos) disagreement() string {
	status := c.status()
	var wrong []string
	all, damaged := 0, 0
	for _, w := range c.pods {
		names := map[string]bool{}
		for _, p := range w.pods {
			names[p.name] = true
			all++
			if c.isDamaged(p.name) {
				damaged++
			}
		}
		for _, g := range status.Guests {
			if g.Name != w.guest.options.Name {
				continue
			}
			if g.Error != "" || g.SlotsQuarantined > 0 {
				wrong = append(wrong, fmt.Sprintf("%s: %s, %d quarantined slots", g.Name, g.Error, g.SlotsQuarantined))
			}
			for _, nic := range g.NICs {
				if nic.Container != "" && !names[nic.Container] {
					wrong = append(wrong, fmt.Sprintf("%s has leaked %s (%s)", g.Name, nic.Container, nic.State))
				}
				delete(names, nic.Container)
			}
			for _, shared := range g.Shared {
				wrong = append(wrong, fmt.Sprintf("%s has leaked the share %+v", g.Name, shared))
			}
		}
		for name := range names {
			if !c.isDamaged(name) {
				wrong = append(wrong, fmt.Sprintf("%s has no NIC in %s", name, w.guest.options.Name))
			}
		}
	}
	for _, s := range status.Segments {
		wrong = append(wrong, fmt.Sprintf("leaked segment %s", s.Pod))
	}
	inUse := 0
	for _, t := range status.Tenants {
		inUse += t.Attachments
	}
	if taps := len(c.taps()); taps > all || taps < all-damaged || inUse > all || inUse < all-damaged {
		wrong = append(wrong, fmt.Sprintf("%d TAPs and %d attachments of %d pods, %d of them without TAP", taps, inUse, all, damaged))
	}
	return strings.Join(wrong, "; ")
}

// checkReports fails unless CHECK reports a pod whose TAP was deleted.
func (c *chaos) checkReports(w *podWorker, p chaosPod) {
	if !c.isDamaged(p.name) {
		return
	}
	config := chaosNetwork()
	config["prevResult"] = map[string]any{
		"cniVersion": "1.1.0", "interfaces": []map[string]string{{"name": "eth0", "sandbox": "/run/netns/" + p.name}},
		"ips": []map[string]any{{"address": p.address + "/16", "interface": 0}},
	}
	if out, err := cni(w.shell, "CHECK", p.name, config); err == nil {
		c.fail("CHECK of %s, whose TAP was deleted, succeeds: %s", p.name, out)
	}
	c.count("verified: CHECK reports a pod whose TAP was deleted")
}

// isolated probes from inside a pod: its frames with the address of another pod are not
// answered, and it does not reach the other tenant.
func (c *chaos) isolated(w *podWorker) {
	i := slices.IndexFunc(w.pods, func(p chaosPod) bool { return !c.isDamaged(p.name) })
	if i < 0 {
		return
	}
	pod := w.pods[i].name
	prefix, other := "10.201.", "10.203.0.1"
	if w.guest.options.Tenant == "red" {
		prefix, other = "10.203.", "10.201.0.1"
	}
	forged := prefix + "254.77"
	for what, script := range map[string]string{
		"from a forged address": fmt.Sprintf("ip -n %[1]s addr add %[2]s/16 dev eth0; ip netns exec %[1]s busybox ping -c 2 -W 1 -I %[2]s %[3]s; r=$?; ip -n %[1]s addr del %[2]s/16 dev eth0; [ $r != 0 ]", pod, forged, w.gateway()),
		"to the other tenant":   fmt.Sprintf("! ip netns exec %s busybox ping -c 2 -W 1 %s", pod, other),
	} {
		if out, err := w.shell.do(script); err != nil && !w.guest.lost(w.epoch) {
			c.fail("%s in %s sends %s, and is answered: %s", pod, w.guest.options.Name, what, out)
		}
		c.count("verified: no answer to a pod that sends " + what)
	}
	if err := w.verify(w.pods[i]); err != nil {
		c.fail("after the probes: %v", err)
	}
}

// nothingLeft fails if anything of a pod is left when all have ended.
func (c *chaos) nothingLeft() {
	c.t.Helper()
	c.finishReleases()
	c.settled("nothing is left", func() string {
		text := c.disagreement()
		for _, t := range c.status().Tenants {
			if t.AddressesInUse != 0 || t.Attachments != 0 {
				text += fmt.Sprintf("; tenant %s has %d attachments and %d addresses", t.Name, t.Attachments, t.AddressesInUse)
			}
		}
		return text
	})
	for _, g := range c.guests {
		if out := g.node.run("ip netns list; find /run/unnest -path '*pending*' -type f 2>/dev/null || true"); strings.TrimSpace(out) != "" {
			c.fail("left in %s: %s", g.options.Name, out)
		}
	}
}
