package libnetwork

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A container's own NIC bypasses the guest, whose port is published. So one docker-proxy for each port
// serves it, as Docker starts for its own networks. The proxies outlive the driver; the address of the
// container, which they have as an argument, says whose they are.

// publication is a port that the guest publishes, with the numbers of protocols and ports.
type publication struct {
	Proto                       int
	HostIP                      string
	Port, HostPort, HostPortEnd uint16
}

var protocols = map[int]string{6: "tcp", 17: "udp", 132: "sctp"}

// publications reads what "docker run --publish" has asked for.
func publications(options map[string]json.RawMessage) (all []publication, err error) {
	raw, ok := options[labelPorts]
	if !ok {
		return nil, nil
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, fmt.Errorf("published ports: %w", err)
	}
	for _, p := range all {
		switch {
		case protocols[p.Proto] == "":
			return nil, fmt.Errorf("publish port %d: protocol %d: want tcp, udp or sctp", p.Port, p.Proto)
		case p.HostPort == 0 || p.HostPortEnd > p.HostPort:
			return nil, fmt.Errorf("publish port %d: name one port of the guest, such as --publish 8080:%d; Docker cannot show which one a driver chooses", p.Port, p.Port)
		}
	}
	return all, nil
}

// arguments are those of docker-proxy for the addresses of a container: with a host address one of its
// family, without one both.
func (p publication) arguments(n nic) (all [][]string, err error) {
	for _, six := range []bool{false, true} {
		on, to := "0.0.0.0", n.of(six)
		if six {
			on = "::"
		}
		if p.HostIP != "" {
			a, err := netip.ParseAddr(p.HostIP)
			if err != nil {
				return nil, fmt.Errorf("publish port %d on %q: %w", p.Port, p.HostIP, err)
			}
			if a.Is6() != six {
				continue
			}
			on = a.String()
		}
		if !to.IsValid() {
			continue
		}
		all = append(all, []string{
			"-proto", protocols[p.Proto], "-host-ip", on, "-host-port", strconv.Itoa(int(p.HostPort)),
			"-container-ip", to.Addr().String(), "-container-port", strconv.Itoa(int(p.Port)),
		})
	}
	return all, nil
}

// publish serves ProgramExternalConnectivity: on an error no port is published.
func (d *driver) publish(ctx context.Context, r endpoint) (_ any, err error) {
	n, ok := d.findEndpoint(r.EndpointID)
	if !ok {
		return nil, nil // a Hostlo network has no addresses
	}
	ports, err := publications(r.Options)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, stopProxies(n))
		}
	}()
	for _, p := range ports {
		all, err := p.arguments(n)
		if err != nil {
			return nil, err
		}
		for _, arguments := range all {
			if err := startProxy(ctx, d.proxy, arguments); err != nil {
				return nil, fmt.Errorf("publish port %d as %d: %w", p.Port, p.HostPort, err)
			}
		}
	}
	return nil, nil
}

// unpublish serves RevokeExternalConnectivity.
func (d *driver) unpublish(_ context.Context, r endpoint) (any, error) {
	n, _ := d.findEndpoint(r.EndpointID)
	return nil, stopProxies(n)
}

// proxyTime is how long a proxy may take to listen.
const proxyTime = 10 * time.Second

// startProxy starts a docker-proxy and waits until it listens. It reports that to its file descriptor
// 3: 0 and a newline, or 1, a newline and the error.
func startProxy(ctx context.Context, program string, arguments []string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, arguments...)
	cmd.ExtraFiles = []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // it outlives the driver
	err = errors.Join(cmd.Start(), w.Close())
	if err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // it is stopped by a signal
	if err := r.SetReadDeadline(time.Now().Add(proxyTime)); err != nil {
		return err
	}
	report, err := io.ReadAll(io.LimitReader(r, 2))
	if err == nil && string(report) == "0\n" {
		return nil
	}
	reason, _ := io.ReadAll(io.LimitReader(r, 4096))
	_ = cmd.Process.Kill() // it may have ended
	return fmt.Errorf("%s: %w%s", program, errProxy, bytes.TrimSpace(append([]byte(": "), reason...)))
}

var errProxy = errors.New("does not listen")

// stopProxies stops the proxies to a NIC's addresses.
func stopProxies(n nic) (err error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		content, readErr := os.ReadFile(f)
		if readErr != nil { // it has ended
			continue
		}
		arguments := strings.Split(string(content), "\x00")
		i := slices.Index(arguments, "-container-ip")
		if filepath.Base(arguments[0]) != "docker-proxy" || i < 0 || i+1 >= len(arguments) {
			continue
		}
		to, parseErr := netip.ParseAddr(arguments[i+1])
		if parseErr != nil || !slices.ContainsFunc(n.Addresses, func(a netip.Prefix) bool { return a.Addr() == to }) {
			continue
		}
		pid, _ := strconv.Atoi(strings.Split(f, "/")[2]) // digits
		if killErr := syscall.Kill(pid, syscall.SIGKILL); killErr != nil && !errors.Is(killErr, syscall.ESRCH) {
			err = errors.Join(err, fmt.Errorf("stop docker-proxy %d: %w", pid, killErr))
		}
	}
	return err
}
