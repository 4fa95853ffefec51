package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"unnest/internal/lab"
	"unnest/internal/policy"
)

const (
	daemonLog      = "hostd.log"
	daemonConfig   = "hostd.yaml"
	daemonPatience = 10 * time.Second
	daemonPoll     = 20 * time.Millisecond
)

// StartDaemon starts the host daemon of the lab, the program unnest at path, in
// the host's namespace, and waits until it takes connections. It lives until
// the lab is closed.
func (f *Fleet) StartDaemon(ctx context.Context, path string) error {
	config := filepath.Join(f.Lab.Dir, daemonConfig)
	content, err := policy.Marshal(f.Policy)
	if err == nil {
		err = os.WriteFile(config, content, 0o600)
	}
	if err != nil {
		return fmt.Errorf("configure host daemon: %w", err)
	}
	log, err := os.OpenFile(filepath.Join(f.Lab.Dir, daemonLog), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start host daemon: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(path, "hostd", "--config", config, "--state", f.Lab.Dir)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := lab.Do(f.Lab.HostNS(), cmd.Start); err != nil {
		return fmt.Errorf("start host daemon: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return f.awaitDaemon(ctx, ended)
}

func (f *Fleet) awaitDaemon(ctx context.Context, ended <-chan error) error {
	ctx, cancel := context.WithTimeout(ctx, daemonPatience)
	defer cancel()
	for {
		conn, err := f.Lab.Dial(ctx, "tcp", daemonAddress)
		if err == nil {
			return conn.Close()
		}
		select {
		case err := <-ended:
			if err == nil {
				err = errors.New("exit status 0")
			}
			return fmt.Errorf("start host daemon: it ended (%w): %s", err, f.lastLog())
		case <-ctx.Done():
			return fmt.Errorf("start host daemon: no answer on %s: %w: %s", daemonAddress, context.Cause(ctx), f.lastLog())
		case <-time.After(daemonPoll):
		}
	}
}

// lastLog returns the last line of the daemon's log.
func (f *Fleet) lastLog() string {
	content, err := os.ReadFile(filepath.Join(f.Lab.Dir, daemonLog))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	return lines[len(lines)-1]
}
