package clientserver

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/measure/benchtest"
	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/testbed/lab"
	"unnest.io/unnest/internal/testbed/place"
)

// hold makes new namespaces that end with the test, from within those of the process
// within (0: the test). It returns the process that holds them.
func hold(t *testing.T, within int, namespaces ...string) int {
	t.Helper()
	args := append([]string{"unshare"}, namespaces...)
	if within != 0 {
		args = append([]string{"nsenter", "--mount", "--net", "--target", strconv.Itoa(within), "--"}, args...)
	}
	args = append(args, "sh", "-c", "echo ready; exec sleep 600")
	cmd := exec.Command(args[0], args[1:]...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if _, err := io.ReadFull(out, make([]byte, len("ready\n"))); err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return cmd.Process.Pid
}

// overlayGuest makes a namespace as a guest with a container called name. Its engine
// knows only the container's process.
func overlayGuest(t *testing.T, address, name string) (s *machine.Machine, guest, container int) {
	t.Helper()
	guest = hold(t, 0, "--mount", "--net")
	container = hold(t, guest, "--net")
	bin := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\n[ \"$4\" = %s ] && echo %d\n", name, container)
	if err := os.WriteFile(filepath.Join(bin, machine.Nerdctl), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	s = &machine.Machine{Address: address, Place: place.Within{
		Place: place.Local{}, Enter: []string{"nsenter", "--mount", "--net", "--target", strconv.Itoa(guest), "--"},
		Env: []string{"PATH=" + bin + ":" + os.Getenv("PATH")}, Name: "guest " + address,
	}}
	for _, command := range []string{"mkdir -p /run/netns", "mount -t tmpfs netns /run/netns", "ip link set lo up"} {
		if err := place.Run(t.Context(), s.Place, strings.Fields(command)...); err != nil {
			t.Fatal(err)
		}
	}
	return s, guest, container
}

func netNS(pid int) string { return fmt.Sprintf("/proc/%d/ns/net", pid) }

// echo listens on an address in a network namespace and returns what it receives.
func echo(t *testing.T, ns string, address string) {
	t.Helper()
	err := lab.Do(ns, func() error {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					_, _ = io.Copy(c, c)
				}()
			}
		}()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Two containers in two guests reach each other over the overlay, only by UDP to the
// VXLAN port between the guests, and without learning.
func TestOverlay(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root and network namespaces: set UNNEST_PRIVILEGED=1")
	}
	near, _, client := overlayGuest(t, "10.201.0.2", "web-client")
	far, farNS, server := overlayGuest(t, "10.201.0.3", "web")
	wire := fmt.Sprintf("ip link add eth0 type veth peer name eth0 netns /proc/%d/ns/net", farNS)
	for _, step := range []struct {
		in      *machine.Machine
		command string
	}{
		{near, wire},
		{near, "ip address add 10.201.0.2/16 dev eth0"}, {near, "ip link set eth0 up"},
		{far, "ip address add 10.201.0.3/16 dev eth0"}, {far, "ip link set eth0 up"},
	} {
		if err := place.Run(t.Context(), step.in.Place, strings.Fields(step.command)...); err != nil {
			t.Fatal(err)
		}
	}
	if err := joinOverlay(t.Context(), near, "web-client", far, "web"); err != nil {
		t.Fatal(err)
	}
	end := netip.AddrPortFrom(netip.MustParseAddr(serverVTEP.address), 7000).String()
	echo(t, netNS(server), end)
	err := lab.Do(netNS(client), func() error {
		conn, err := net.DialTimeout("tcp", end, time.Minute)
		if err != nil {
			return err
		}
		defer conn.Close()
		sent := strings.Repeat("overlay!", 100_000)
		go func() { _, _ = io.WriteString(conn, sent) }()
		got := make([]byte, len(sent))
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		if _, err := io.ReadFull(conn, got); err == nil && string(got) != sent {
			return fmt.Errorf("what comes back is not what was sent")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		command string
		want    []string
	}{
		{"ip -n overlay -d link show vxlan0", []string{"mtu 1450", "master br0", "vxlan id 4097", "dstport 4789", "proxy", "l2miss", "l3miss"}},
		{"ip -n overlay neighbour show dev vxlan0", []string{"10.0.1.3 lladdr 02:42:0a:00:01:03 PERMANENT"}},
		{"bridge -n overlay fdb show dev vxlan0", []string{"02:42:0a:00:01:03 dst 10.201.0.3 ", "self permanent"}},
		{"ip -n overlay address show dev br0", []string{"inet 10.0.1.1/24"}},
		{fmt.Sprintf("nsenter --net=%s ip address show dev eth0", netNS(client)), []string{"mtu 1450", "inet 10.0.1.2/24", "02:42:0a:00:01:02"}},
	} {
		out, err := place.Output(t.Context(), near.Place, strings.Fields(tt.command)...)
		if err != nil || !benchtest.ContainsAll(string(out), tt.want...) {
			t.Errorf("%s: %v, want %q in\n%s", tt.command, err, tt.want, out)
		}
	}
	if err := joinOverlay(t.Context(), near, "nobody", far, "web"); err == nil || !strings.Contains(err.Error(), "container nobody") {
		t.Errorf("got %v; want an error that names the container", err)
	}
}
