//go:build kubernetes

package e2e

import (
	"strings"

	"unnest.io/unnest/internal/hostd/status"
	"unnest.io/unnest/internal/testbed/cluster"
)

// onNode runs a command on a node, which must succeed.
func (k *kubernetes) onNode(node string, command ...string) string {
	k.t.Helper()
	c, err := cluster.View()
	k.check(err)
	var out []byte
	k.eventually(node+" runs "+strings.Join(command, " "), func() bool { // a busy one lets no one log in within seconds
		out, err = c.OnNode(k.t.Context(), node, command...)
		return err == nil
	})
	return string(out)
}

// certificate returns the serial number of a node's certificate in a state.
func (k *kubernetes) certificate(node, state string) (serial string) {
	k.t.Helper()
	s, err := status.Ask(k.t.Context(), k.fleet.Lab.Dir)
	k.check(err)
	for _, g := range s.Guests {
		for _, c := range g.Certificates {
			if g.Name == node && c.State == state {
				serial = c.Serial
			}
		}
	}
	return serial
}

// vouched checks that the nodes have credentials that the VMM has handed to them, and others
// when these are revoked. A pod cannot open the drive, even by a device node of its own.
func (k *kubernetes) vouched() {
	for _, node := range []string{"node1", "node2"} {
		said := k.onNode(node, "cat", "/var/log/credentials.log")
		if !strings.Contains(said, "installed the credentials of "+node+": valid until ") {
			k.t.Errorf("%s: the log is %s", node, said)
		}
		modes := k.onNode(node, "stat", "-c", "%a %U %n", "/dev/sr0", "/etc/unnest/client.key", "/etc/unnest/client.crt", "/etc/unnest/ca.crt")
		for line := range strings.Lines(modes) {
			if !strings.HasPrefix(line, "600 root ") {
				k.t.Errorf("%s has %s", node, line)
			}
		}
	}
	was := k.certificate("node1", "used")
	mustRun(k.t, k.unnest, "hostd", "revoke", "node1", "--serial", was, "--state", k.fleet.Lab.Dir)
	k.within(bootLimit, "node1 has another certificate", func() bool {
		now := k.certificate("node1", "used")
		return now != "" && now != was
	})
	k.within(bootLimit, "the drive has another certificate", func() bool { return k.certificate("node1", "unused") != "" })
	tried := k.in("own-node1", "busybox mknod /tmp/sr0 b 11 0; cat /tmp/sr0 2>&1; busybox rm /tmp/sr0")
	if !strings.Contains(tried, "Operation not permitted") {
		k.t.Errorf("a pod reads the drive of its node: %.100q", tried)
	}
}

// credentialsOfChart runs what the chart runs with credentials.vmm: a privileged container
// reads the drive.
func (k *kubernetes) credentialsOfChart() {
	k.helm("upgrade", "unnest", "../../deploy/chart", "--reuse-values", "--set=credentials.vmm=true", "--wait", "--timeout=4m")
	out := k.ctl("--namespace=unnest-system", "exec", "daemonset/unnest-cni", "--container=credentials", "--",
		"/unnest-cni", "credentials", "-credentials=/etc/unnest/try")
	if !strings.Contains(out, "installed the credentials of node") {
		k.t.Errorf("the container says %q", out)
	}
}
