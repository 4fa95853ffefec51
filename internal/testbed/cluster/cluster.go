// Package cluster makes a Kubernetes cluster of this machine: its control plane runs in the
// host's namespace of a lab, and its nodes are guests of the lab. Their pods have a NIC of
// their own (BrFusion), or that of a bridge in the guest.
//
// It knows how a cluster is put together. What runs in the cluster belongs to others.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"unnest.io/unnest/internal/testbed/fleet"
	"unnest.io/unnest/internal/testbed/guest"
	"unnest.io/unnest/internal/testbed/image"
	"unnest.io/unnest/internal/testbed/lab"
)

// LabName is the name of the cluster's lab.
const LabName = "cluster"

// The networks of pods. Each is also the name of a RuntimeClass.
const (
	BrFusion = "brfusion" // each pod has a NIC of its own
	Bridge   = "bridge"   // pods are behind a bridge in the guest, which routes their packets
)

// Options describe a cluster.
type Options struct {
	Programs   string                                     // directory of the programs of Kubernetes and etcd
	Unnest     string                                     // path of the binary unnest
	MakeImage  func(context.Context) (image.Image, error) // of the nodes; see BuildImage
	Accel      guest.Accel
	Nodes      int
	VCPUs      int
	Memory     int64 // bytes
	Slots      int   // NICs of pods on each node at the same time
	Pool       int   // of these, plugged in advance
	Network    string
	SplitPods  string // span of split pods, SpanHost or SpanNetwork: run their controller, and chain hostlo in the networks of pods; empty: neither
	Controller string // path of unnest-kube, for SplitPods
	Shares     int    // volumes that fractions of split pods can have on each node at the same time
	ProxyMode  string // kube-proxy's: iptables or nftables
	// IPFamilies are those of pods and Services: IPv4, IPv6 or DualStack. Empty: IPv4.
	IPFamilies string
	Port       int // of the API server on 127.0.0.1; 0: a free one
	Wait       time.Duration
	Snapshots  *guest.Snapshots  // nil: nodes boot
	Progress   func(step string) // called with each step
}

// Cluster is a cluster whose lab this process has open.
type Cluster struct {
	Lab     *lab.Lab
	fleet   *fleet.Fleet
	options Options
	image   image.Image // of the nodes
	keys    keys
	began   time.Time
}

// ErrExists is the error for a cluster that is up already.
var ErrExists = errors.New("the cluster is up already: remove it by `unnest cluster down`")

// Up makes the cluster and waits until its nodes are ready. If a step fails, it keeps the logs
// and removes everything else. It first removes what a killed Up has left.
func Up(ctx context.Context, o Options) (_ *Cluster, err error) {
	if _, err := lab.Clean(ctx, false, LabName); err != nil {
		return nil, err
	}
	l, err := lab.Create(LabName)
	if errors.Is(err, lab.ErrExists) || errors.Is(err, lab.ErrInUse) {
		return nil, fmt.Errorf("%w (%w)", ErrExists, err)
	}
	if err != nil {
		return nil, err
	}
	c := &Cluster{Lab: l, options: o}
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", o.Port)) // now, because the image may take minutes
	if err != nil {
		return nil, errors.Join(fmt.Errorf("forward to the API server: %w: choose another port by --port", err), l.Close())
	}
	defer listener.Close()
	if c.image, err = o.MakeImage(ctx); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	c.began = time.Now()
	err = c.build(ctx, listener)
	if err != nil && ctx.Err() == nil {
		err = c.keepLogs(err)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return c, nil
}

// build makes everything in the lab. The nodes boot while the control plane starts.
func (c *Cluster) build(ctx context.Context, listener net.Listener) error {
	err := os.MkdirAll(c.path(""), 0o700)
	if err == nil {
		err = os.Symlink(c.options.Programs, c.path(programsLink))
	}
	if err == nil {
		c.keys, err = newKeys()
	}
	if err == nil {
		c.fleet, err = fleet.Open(c.Lab)
	}
	if err == nil {
		c.fleet.Progress = c.options.Progress
	}
	if err == nil {
		c.setPolicy()
		err = c.addFamilies()
	}
	if err == nil {
		err = c.fleet.StartDaemon(ctx, c.options.Unnest)
	}
	if err != nil {
		return err
	}
	nodes, err := c.launchNodes(ctx)
	if err != nil {
		return err
	}
	if err := c.startControlPlane(ctx); err != nil {
		return err
	}
	c.report("the control plane is ready")
	if err := errors.Join(c.forward(listener), c.writeKubeconfig("admin.conf", "https://"+listener.Addr().String(), "admin", administrators)); err != nil {
		return err
	}
	if err := c.Apply(ctx, runtimeClasses()...); err != nil {
		return err
	}
	if c.options.SplitPods != "" {
		if err := c.startSplitController(ctx); err != nil {
			return err
		}
		c.report("pods can be split")
	}
	if err := c.startDNS(ctx); err != nil {
		return err
	}
	c.report("DNS is ready")
	if err := c.startPolicies(ctx); err != nil {
		return err
	}
	c.report("NetworkPolicies are in force")
	return c.await(ctx, nodes)
}

// await waits until all nodes are ready.
func (c *Cluster) await(ctx context.Context, nodes []*fleet.Node) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.options.Wait, fmt.Errorf("not within %v", c.options.Wait))
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	for _, n := range nodes {
		g.Go(func() error {
			ssh, boot, err := c.fleet.Login(ctx, n)
			if err != nil {
				return err
			}
			defer ssh.Close()
			c.report("%s answers %.1f s after its start", n.Name, boot.Total.Seconds())
			if err := c.awaitNode(ctx, n); err != nil {
				return fmt.Errorf("wait for node %s: %w", n.Name, err)
			}
			c.report("%s is ready", n.Name)
			return nil
		})
	}
	return g.Wait()
}

// report reports a step with the time since the beginning.
func (c *Cluster) report(format string, args ...any) {
	if c.options.Progress != nil {
		c.options.Progress(fmt.Sprintf("%5.1f s  ", time.Since(c.began).Seconds()) + fmt.Sprintf(format, args...))
	}
}

// path is the path of a file of the cluster in the state directory of the lab.
func (c *Cluster) path(file string) string { return filepath.Join(c.Lab.Dir, "kubernetes", file) }

// View returns the cluster that is up, to look at it.
func View() (*Cluster, error) {
	l, err := lab.View(LabName)
	if err == nil {
		_, err = os.Stat(kubeconfigOf(l))
	}
	if errors.Is(err, lab.ErrNoLab) || errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("no cluster is up: start one by `unnest cluster up`")
	}
	if err != nil {
		return nil, err
	}
	families, err := readFamilies(l)
	if err != nil {
		return nil, fmt.Errorf("read the cluster's families of addresses: %w", err)
	}
	f, err := fleet.Open(l)
	if err != nil {
		return nil, err
	}
	unnest, err := os.Executable()
	return &Cluster{Lab: l, fleet: f, options: Options{IPFamilies: families, Unnest: unnest, Programs: filepath.Join(l.Dir, "kubernetes", programsLink)}}, err
}

// Down removes the cluster, and what killed commands have left of one. It reports whether
// there was one.
func Down(ctx context.Context) (bool, error) {
	l, err := lab.Open(LabName)
	if errors.Is(err, lab.ErrNoLab) {
		removed, err := lab.Clean(ctx, false, LabName)
		return len(removed) > 0, err
	}
	if err != nil {
		return false, fmt.Errorf("remove the cluster: %w", err)
	}
	return true, l.Close()
}
