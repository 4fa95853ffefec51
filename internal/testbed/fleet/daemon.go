package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/hostd/status"
	"unnest.io/unnest/internal/testbed/lab"
	"unnest.io/unnest/internal/testbed/place"
)

const (
	daemonLog     = "hostd.log"
	daemonConfig  = "hostd.yaml"
	daemonTimeout = 30 * time.Second // it takes over segments first, which takes long on a busy machine
	daemonNotify  = "hostd.notify"   // socket for its sd_notify(3) message
)

// StartDaemon starts the lab's host daemon, the binary unnest at path, in the host's
// namespace, and waits until it accepts connections. It runs until the lab is closed.
func (f *Fleet) StartDaemon(ctx context.Context, path string) error {
	if err := f.startDaemon(ctx, path); err != nil {
		return fmt.Errorf("start host daemon: %w", err)
	}
	return nil
}

// askTime bounds the wait for an answer of the daemon.
const askTime = 5 * time.Second

// AskDaemon returns nil if the lab's host daemon takes requests of guests.
func (f *Fleet) AskDaemon(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, askTime, fmt.Errorf("it does not answer within %v", askTime))
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://hostd/healthz", nil)
	if err != nil {
		return err
	}
	answer, err := status.Client(f.Lab.Dir).Do(r)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ECONNREFUSED):
		return errors.New("it does not run")
	case err != nil:
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s", answer.Status)
	}
	return nil
}

// RepairDaemon starts the lab's host daemon again if it has ended, with the configuration that it
// had, and reports whether it has. Pods keep their NICs.
func (f *Fleet) RepairDaemon(ctx context.Context, path string) (repaired bool, err error) {
	if f.AskDaemon(ctx) == nil {
		return false, nil
	}
	if _, err := os.Stat(f.Lab.HostNS()); errors.Is(err, os.ErrNotExist) {
		return false, errors.New("start host daemon again: the network of the guests is gone, as after a reboot of this machine: " +
			"remove what is left by `unnest vm down --all` or, of a cluster, by `unnest cluster down`")
	}
	file := filepath.Join(f.Lab.Dir, daemonConfig)
	content, err := os.ReadFile(file)
	if err == nil {
		f.Policy, err = quota.Parse(file, content)
	} else if errors.Is(err, os.ErrNotExist) { // it was never started
		err = nil
	}
	if err != nil {
		return false, fmt.Errorf("start host daemon again: %w", err)
	}
	return true, f.StartDaemon(ctx, path)
}

func (f *Fleet) startDaemon(ctx context.Context, path string) error {
	config := filepath.Join(f.Lab.Dir, daemonConfig)
	content, err := quota.Marshal(f.Policy)
	if err == nil {
		err = os.WriteFile(config, content, 0o600)
	}
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(f.Lab.Dir, daemonLog), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	ready, err := listenReady(filepath.Join(f.Lab.Dir, daemonNotify))
	if err != nil {
		return err
	}
	defer ready.Close()
	cmd := exec.Command(path, "hostd", "--config", config, "--state", f.Lab.Dir)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+ready.LocalAddr().String())
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := lab.Do(f.Lab.HostNS(), cmd.Start); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return f.awaitDaemon(ctx, ready, ended)
}

// listenReady opens the socket for the daemon's sd_notify message. It removes the
// socket of an earlier daemon.
func listenReady(path string) (*net.UnixConn, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
}

// awaitDaemon waits for the message of the new process. An open port is not enough: it
// can be that of a daemon that was just killed.
func (f *Fleet) awaitDaemon(ctx context.Context, ready io.Reader, ended <-chan error) error {
	ctx, cancel := context.WithTimeout(ctx, daemonTimeout)
	defer cancel()
	message := make(chan error, 1)
	go func() {
		b := make([]byte, 256)
		n, err := ready.Read(b)
		if err == nil && string(b[:n]) != systemd.SdNotifyReady {
			err = fmt.Errorf("it reports %q, want ready", b[:n])
		}
		message <- err
	}()
	select {
	case err := <-message:
		return err
	case err := <-ended:
		if err == nil {
			err = errors.New("exit status 0")
		}
		return fmt.Errorf("it ended (%w): %s", err, f.lastLog())
	case <-ctx.Done():
		return fmt.Errorf("it is not ready on %s: %w: %s", daemonAddress, context.Cause(ctx), f.lastLog())
	}
}

// lastLog returns the last line of the daemon's log.
func (f *Fleet) lastLog() string {
	content, err := os.ReadFile(filepath.Join(f.Lab.Dir, daemonLog))
	if err != nil {
		return err.Error()
	}
	return place.LastLines(string(content), 1)
}
