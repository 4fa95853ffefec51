package libnetwork

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"unnest.io/unnest/internal/cni/attachment"
	"unnest.io/unnest/internal/cni/hostclient"
	"unnest.io/unnest/internal/cni/netconf"
)

// Verb is the argument by which the binary of the plugins runs Main.
const Verb = "docker-driver"

const usage = `Serves Docker in this guest as a driver of networks and addresses.

  unnest-cni docker-driver [flags]

Docker finds it by its socket, whose name is that of the driver: docker network
create -d unnest --ipam-driver unnest NAME. Started by systemd's socket unit it
serves that unit's socket.

`

// stopTime is how long the driver finishes calls after a signal.
const stopTime = 30 * time.Second

// Main is the command "unnest-cni docker-driver". It runs until a signal and returns the exit code:
// 0 ended by a signal, 1 failed, 2 wrong usage.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	d := &driver{nics: map[string]nic{}, joins: map[string]joining{}}
	flags := hostclient.Flags("unnest-cni docker-driver", &d.server, &d.credentials)
	flags.DurationVar(&d.wait, "wait", netconf.DefaultWait, "how long a NIC may take to appear")
	flags.StringVar(&d.proxy, "proxy", "docker-proxy", "`PROGRAM` of Docker that publishes ports")
	socket := flags.String("socket", "/run/docker/plugins/unnest.sock", "`FILE` of the socket, unless systemd has opened it\n")
	state := flags.String("state", "/var/lib/unnest/docker", "`DIRECTORY` of the Hostlo networks")
	interval := flags.Duration("interval", sweepInterval, "time between two looks for NICs that Docker has lost")
	flags.DurationVar(&d.maxIdle, "max-idle", maxIdle, "how long a NIC may be in no container before Docker has lost it\n")
	flags.DurationVar(&d.away, "away", awayTime, "how long the host daemon may not answer\nbefore a container fails to start")
	verbose := flags.Bool("v", false, "log every call")
	if code, ends := hostclient.Parse(flags, args, 0, usage, stdout, stderr); ends {
		return code
	}
	if *interval <= 0 || d.wait <= 0 || d.maxIdle <= 0 || d.away <= 0 {
		fmt.Fprintf(stderr, "unnest-cni docker-driver: -interval %v, -wait %v, -max-idle %v, -away %v: want positive times\n", *interval, d.wait, d.maxIdle, d.away)
		return 2
	}
	level := slog.LevelInfo
	if *verbose {
		level = slog.LevelDebug
	}
	d.log = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	run := filepath.Join(attachment.StateDir, "docker")
	d.nicFiles, d.sandboxes, d.netFiles = directory(filepath.Join(run, "nics")), directory(filepath.Join(run, "sandboxes")), directory(*state)
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := d.run(ctx, *socket, *interval); err != nil {
		fmt.Fprintln(stderr, "unnest-cni docker-driver:", err)
		return 1
	}
	return 0
}

// run serves Docker until ctx ends, and then finishes the calls under way.
func (d *driver) run(ctx context.Context, socket string, interval time.Duration) error {
	if err := d.load(); err != nil {
		return fmt.Errorf("load NICs: %w", err)
	}
	l, err := listen(socket)
	if err != nil {
		return fmt.Errorf("listen for Docker: %w", err)
	}
	if err := d.resumeJoins(ctx); err != nil {
		d.log.Error("resume joins of segments", "error", err)
	}
	server := &http.Server{Handler: d.handler(), ReadHeaderTimeout: time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- fmt.Errorf("serve Docker: %w", server.Serve(l)) }()
	go d.maintain(ctx, interval)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	return server.Shutdown(bound)
}

// firstSocket is the file descriptor of the first socket that systemd passes (sd_listen_fds(3)).
const firstSocket = 3

// listen returns the socket of systemd's unit, or opens one that only root can use.
func listen(path string) (net.Listener, error) {
	if os.Getenv("LISTEN_PID") == fmt.Sprint(os.Getpid()) {
		f := os.NewFile(firstSocket, path)
		defer f.Close()
		return net.FileListener(f)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	if c, err := net.Dial("unix", path); err == nil {
		return nil, errors.Join(fmt.Errorf("%s: another driver serves it", path), c.Close())
	}
	if err := os.RemoveAll(path); err != nil { // of a driver that was killed
		return nil, err
	}
	defer syscall.Umask(syscall.Umask(0o177))
	return net.Listen("unix", path)
}
