package volumedriver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"unnest.io/unnest/internal/cni/attachment"
	"unnest.io/unnest/internal/cni/hostclient"
)

// Verb is the argument by which unnest-volume runs Main.
const Verb = "driver"

const usage = `Serves the kubelet of this guest as the CSI driver volumes.unnest.io: volumes
that fractions of a split pod share.

  unnest-volume driver [flags]

`

// Main is the command "unnest-volume driver". It runs until a signal and returns the exit code: 0 ended by
// a signal, 1 failed, 2 wrong usage.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var server netip.AddrPort
	var credentials string
	flags := hostclient.Flags("unnest-volume driver", &server, &credentials)
	node := flags.String("node", "", "`NAME` of this node in the cluster")
	kubelet := flags.String("kubelet", "/var/lib/kubelet", "`DIRECTORY` of the kubelet")
	if code, ends := hostclient.Parse(flags, args, 0, usage, stdout, stderr); ends {
		return code
	}
	if *node == "" {
		fmt.Fprintln(stderr, "unnest-volume driver: want -node, the node's name in the cluster")
		return 2
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	plugin := filepath.Join(*kubelet, "plugins", Name)
	d := newDriver(*node, server, credentials, filepath.Join(plugin, "published"), slog.New(slog.NewTextHandler(stderr, nil)))
	if err := d.run(ctx, filepath.Join(plugin, "csi.sock"), filepath.Join(*kubelet, "plugins_registry", Name+"-reg.sock")); err != nil && ctx.Err() == nil {
		fmt.Fprintln(stderr, "unnest-volume driver:", err)
		return 1
	}
	return 0
}

// run serves the kubelet at a socket, which the other one registers, until ctx ends. Before, it waits until no other driver of the node
// runs. Nothing is published before it has reclaimed. Then it goes on to reclaim.
func (d *driver) run(ctx context.Context, socket, registry string) error {
	end, err := d.alone(ctx)
	if err != nil {
		return err
	}
	defer end()
	defer d.detaching.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err = d.again(ctx, "find what is published", func() error { return d.reclaim(ctx) })
	if err != nil {
		return fmt.Errorf("the host daemon knows no ephemeral volumes: update it: %w", err)
	}
	d.detaching.Go(func() { d.keepReclaiming(ctx) })
	failed := make(chan error, 3)
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	csi.RegisterIdentityServer(server, d)
	csi.RegisterNodeServer(server, d)
	registration.RegisterRegistrationServer(server, registrar{socket: socket, failed: failed})
	for _, path := range []string{socket, registry} {
		l, err := listen(path)
		if err != nil {
			server.Stop()
			return fmt.Errorf("listen for the kubelet: %w", err)
		}
		go func() {
			if err := server.Serve(l); err != nil {
				failed <- fmt.Errorf("serve the kubelet: %w", err)
			}
		}()
	}
	select {
	case err := <-failed:
		server.Stop()
		return err
	case <-ctx.Done():
		server.GracefulStop()
		return nil
	}
}

// alone waits until no other driver has these records, and keeps others out until end, or the end of the process.
func (d *driver) alone(ctx context.Context) (end func(), err error) {
	if err := os.MkdirAll(string(d.records), 0o700); err != nil {
		return nil, err
	}
	said := time.AfterFunc(d.retry, func() { d.log.Warn("another driver serves this node: waiting until it has ended") })
	defer said.Stop()
	return attachment.LockDir(ctx, string(d.records))
}

// listen opens a socket that only root can use, in place of that of a driver that was killed.
func listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	defer syscall.Umask(syscall.Umask(0o177))
	return net.Listen("unix", path)
}

// registrar tells the kubelet where the driver serves.
type registrar struct {
	registration.UnimplementedRegistrationServer
	socket string
	failed chan<- error
}

// GetInfo implements registration.RegistrationServer.
func (r registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: Name, Endpoint: r.socket, SupportedVersions: []string{"1.0.0"}}, nil
}

// NotifyRegistrationStatus implements registration.RegistrationServer.
func (r registrar) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !s.GetPluginRegistered() {
		select {
		case r.failed <- fmt.Errorf("the kubelet does not register the driver: %s", s.GetError()):
		default:
		}
	}
	return &registration.RegistrationStatusResponse{}, nil
}
