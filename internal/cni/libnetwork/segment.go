package libnetwork

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/plugins/pkg/ns"

	"unnest.io/unnest/internal/cni/hostlo"
	"unnest.io/unnest/internal/cni/loopback"
	"unnest.io/unnest/internal/cni/podnic"
)

// A Hostlo network: each of its containers is a fraction of one segment, whose localhost they share
// with those in other guests. Docker knows no such thing, but names the network namespace in Join. So
// the driver does there what the CNI plugin does, and gives Docker no link.

// The options of a Hostlo network.
const (
	optionSegment = "segment"
	optionKey     = "key"
	optionMode    = "mode"
)

// endpointIn is the name of the segment's endpoint in the container.
const endpointIn = "hostlo0"

// segmentNetwork is a Hostlo network, as its file has it.
type segmentNetwork struct {
	Segment string `json:"segment"`
	Key     string `json:"key"`
	Mode    string `json:"mode,omitempty"`
}

// createSegmentNetwork keeps a Hostlo network, which Docker names by its ID only from now on.
func (d *driver) createSegmentNetwork(r network, options map[string]string) error {
	s := segmentNetwork{options[optionSegment], options[optionKey], options[optionMode]}
	for name := range options {
		if name != optionSegment && name != optionKey && name != optionMode {
			return fmt.Errorf("option %q: a Hostlo network has %s, %s and %s", name, optionSegment, optionKey, optionMode)
		}
	}
	for _, data := range r.IPv4Data {
		if data.AddressSpace != "null" {
			return errors.New("a Hostlo network has no addresses, but one localhost: add --ipam-driver null, in a compose file ipam: {driver: null} with quotes around null")
		}
	}
	if _, err := d.configuration(s); err != nil {
		return err
	}
	if err := d.netFiles.write(r.NetworkID, s); err != nil {
		return fmt.Errorf("keep network %s: %w", r.NetworkID, err)
	}
	return nil
}

// segmentNetwork returns a network if it is a Hostlo network.
func (d *driver) segmentNetwork(id string) (s segmentNetwork, ok bool, err error) {
	err = d.netFiles.read(id, &s)
	if errors.Is(err, fs.ErrNotExist) {
		return s, false, nil
	}
	return s, err == nil, err
}

// configuration is that of the CNI plugin.
func (d *driver) configuration(s segmentNetwork) ([]byte, error) {
	stdin, err := json.Marshal(map[string]any{
		"cniVersion": "1.0.0", "name": networkName, "type": hostlo.Plugin.Name, "server": d.server.String(), "credentials": d.credentials,
		"wait": d.wait.String(), "segment": s.Segment, "key": s.Key, "mode": s.Mode,
	})
	if err != nil {
		return nil, err
	}
	return stdin, hostlo.CheckConfiguration(stdin)
}

// sandbox is the network namespace of an endpoint of a Hostlo network, as its file has it.
type sandbox struct {
	Network, Path string
	Joined        bool
}

// exists reports whether a network namespace is there, or cannot be asked for.
func exists(path string) bool {
	pod, err := ns.GetNS(path)
	if err == nil {
		return pod.Close() == nil
	}
	return !errors.As(err, new(ns.NSPathNotExistErr)) && !errors.As(err, new(ns.NSPathNotNSErr))
}

// arguments are those of the CNI plugin for an endpoint.
func (d *driver) arguments(s segmentNetwork, r endpoint) (*skel.CmdArgs, error) {
	stdin, err := d.configuration(s)
	return &skel.CmdArgs{ContainerID: ownerPrefix + r.EndpointID[:min(len(r.EndpointID), 16)], Netns: r.SandboxKey, IfName: endpointIn, StdinData: stdin}, err
}

// joining is what goes on for an endpoint after Docker's call.
type joining struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// joinSegment makes a container a fraction of the segment. Docker makes the network namespace of a
// container that it starts after Join: joinSegment then returns before it is done.
func (d *driver) joinSegment(ctx context.Context, s segmentNetwork, r endpoint) error {
	args, err := d.arguments(s, r)
	if err != nil {
		return err
	}
	d.endJoining(r.EndpointID) // if Docker has called before
	err = d.endpoints(func(other endpoint, joined bool) error {
		switch {
		case other.NetworkID != r.NetworkID || other.EndpointID == r.EndpointID:
			return nil
		case other.SandboxKey != r.SandboxKey && exists(other.SandboxKey):
			return fmt.Errorf("segment %s: a container of this guest, which docker network inspect shows, is a fraction of it, and a guest has one only: start further containers with --network container:NAME of that one", s.Segment)
		case !joined:
			return nil
		}
		return d.leaveSegment(ctx, other) // Docker forgets those of a crash without a call
	})
	if err != nil {
		return err
	}
	in := sandbox{Network: r.NetworkID, Path: r.SandboxKey}
	if err := d.sandboxes.write(r.EndpointID, in); err != nil {
		return fmt.Errorf("keep sandbox of endpoint %s: %w", r.EndpointID, err)
	}
	if exists(in.Path) {
		if err := d.addSegment(ctx, args, r.EndpointID, in); err != nil {
			return err
		}
		in.Joined = true
	}
	d.inBackground(ctx, args, r.EndpointID, in, false)
	return nil
}

// addSegment joins. After an error DeleteEndpoint, or the next driver, removes what may be left.
func (d *driver) addSegment(ctx context.Context, args *skel.CmdArgs, id string, in sandbox) error {
	if err := hostlo.Plugin.Add(ctx, args); err != nil {
		return err
	}
	in.Joined = true
	return d.sandboxes.write(id, in)
}

// openIPv6 gives a container ::1, and makes the addresses of IPv6 of other fractions local, as they are on a kernel's loopback.
func openIPv6(path string) error {
	return ns.WithNetNSPath(path, func(ns.NetNS) error {
		err := podnic.SetSysctl("ipv6/conf/lo/disable_ipv6", "0")
		if errors.Is(err, fs.ErrNotExist) { // a kernel without IPv6
			return nil
		}
		return errors.Join(err, loopback.AddAliases())
	})
}

// keepIPv6 calls openIPv6 again and again, at first often, until ctx or the container ends. Docker and runc set IPv6 of a
// container's loopback after they have made its network namespace: Docker turns it off, if the container has no address of IPv6,
// or has lost its last one.
func (d *driver) keepIPv6(ctx context.Context, id, path string) {
	logged := ""
	for pause := firstLook; exists(path); pause = min(2*pause, time.Minute) {
		if err := openIPv6(path); err != nil && err.Error() != logged && exists(path) {
			d.log.Error("share IPv6", "endpoint", id, "error", err)
			logged = err.Error()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// inBackground joins, unless the container has joined, keeps IPv6 of it, and leaves the segment when the container has ended, of
// which Docker says nothing after a crash. endJoining ends it. resumed: another driver has begun.
func (d *driver) inBackground(ctx context.Context, args *skel.CmdArgs, id string, in sandbox, resumed bool) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	j := joining{cancel, make(chan struct{})}
	d.mu.Lock()
	d.joins[id] = j
	d.mu.Unlock()
	go func() {
		defer close(j.done)
		defer cancel()
		if in.Joined || d.joinLater(ctx, args, id, in, resumed) {
			d.keepIPv6(ctx, id, in.Path)
		}
		if ctx.Err() != nil {
			return
		}
		err := hostlo.Plugin.Del(ctx, args)
		if err == nil {
			err = d.sandboxes.remove(id)
		}
		if d.mu.Lock(); err == nil && d.joins[id].done == j.done {
			delete(d.joins, id)
		}
		d.mu.Unlock()
		if err != nil && ctx.Err() == nil { // the next driver tries it again
			d.log.Error("forget a container that has ended", "endpoint", id, "error", err)
		}
	}()
}

// joinLater joins as soon as the container has its network namespace. It tries until that succeeds, which it reports, or the
// container or ctx has ended. What an ADD has left that was killed, or could not be undone, would make the next one fail.
func (d *driver) joinLater(ctx context.Context, args *skel.CmdArgs, id string, in sandbox, left bool) bool {
	err := inSandbox(ctx, in.Path, func(ns.NetNS) (bool, error) { return true, nil })
	if err != nil && ctx.Err() == nil {
		d.log.Error("join segment: the container's network namespace never came", "endpoint", id, "error", err)
	}
	for pause := time.Second; err == nil && exists(in.Path); pause = min(2*pause, time.Minute) {
		var joinErr error
		if left {
			joinErr = hostlo.Plugin.Del(ctx, args)
		}
		if joinErr == nil {
			joinErr = d.addSegment(ctx, args, id, in)
		}
		if joinErr == nil || ctx.Err() != nil {
			return joinErr == nil
		}
		left = true
		d.log.Error("join segment; trying again", "endpoint", id, "error", joinErr)
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause):
		}
	}
	return false
}

// endpoints calls f for each endpoint of the Hostlo networks whose file can be read.
func (d *driver) endpoints(f func(r endpoint, joined bool) error) error {
	all, err := d.sandboxes.names()
	for _, id := range all {
		var in sandbox
		switch readErr := d.sandboxes.read(id, &in); {
		case readErr == nil:
			err = errors.Join(err, f(endpoint{NetworkID: in.Network, EndpointID: id, SandboxKey: in.Path}, in.Joined))
		case !errors.Is(readErr, fs.ErrNotExist): // it has left meanwhile
			d.log.Error("the file of an endpoint is damaged", "endpoint", id, "error", readErr)
		}
	}
	return err
}

// resumeJoins goes on with what the driver before this one has not finished.
func (d *driver) resumeJoins(ctx context.Context) error {
	return d.endpoints(func(r endpoint, joined bool) error {
		s, ok, err := d.segmentNetwork(r.NetworkID)
		if !ok || err != nil {
			return err
		}
		args, err := d.arguments(s, r)
		if err == nil {
			d.inBackground(ctx, args, r.EndpointID, sandbox{r.NetworkID, r.SandboxKey, joined}, true)
		}
		return err
	})
}

// endJoining ends what goes on for an endpoint.
func (d *driver) endJoining(id string) {
	d.mu.Lock()
	j, ok := d.joins[id]
	delete(d.joins, id)
	d.mu.Unlock()
	if ok {
		j.cancel()
		<-j.done
	}
}

// leaveSegment undoes joinSegment. Leave and DeleteEndpoint do not name the sandbox.
func (d *driver) leaveSegment(ctx context.Context, r endpoint) error {
	s, ok, err := d.segmentNetwork(r.NetworkID)
	if !ok || err != nil {
		return err
	}
	d.endJoining(r.EndpointID)
	var in sandbox
	err = d.sandboxes.read(r.EndpointID, &in)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it has left
	}
	if err != nil {
		d.log.Error("the file of an endpoint is damaged", "endpoint", r.EndpointID, "error", err)
	}
	r.SandboxKey = in.Path
	args, err := d.arguments(s, r)
	if err != nil {
		return err
	}
	if err := hostlo.Plugin.Del(ctx, args); err != nil {
		return err
	}
	return d.sandboxes.remove(r.EndpointID)
}
