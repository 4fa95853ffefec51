package status

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// askTime bounds a question to the daemon, which waits at most two seconds for its guests. Tests
// replace it.
var askTime = 10 * time.Second

// detachTime is longer than the daemon takes for all tries.
const detachTime = time.Minute

// errSilent is wrapped when the daemon accepts a connection and does not answer.
var errSilent = errors.New("it accepts connections, but does not answer: is it stopped (state T in ps), or is the host overloaded?")

// Socket returns the path of the unix socket of the daemon with a state directory.
func Socket(stateDir string) string { return filepath.Join(stateDir, "hostd.sock") }

// Client returns an HTTP client of the daemon with a state directory. The host in a
// URL does not matter. A connection lasts for one request: one that stays open would do so
// until the daemon or this process ends.
func Client(stateDir string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", Socket(stateDir))
		},
	}}
}

// send sends a request with a body as JSON, nil for none, and returns what the daemon answers within
// limit.
func send(ctx context.Context, stateDir, method, path string, body any, limit time.Duration) (code int, answer []byte, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errSilent)
	defer cancel()
	content := new(bytes.Buffer)
	if body != nil {
		if err := json.NewEncoder(content).Encode(body); err != nil {
			return 0, nil, err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://hostd"+path, content)
	if err != nil {
		return 0, nil, err
	}
	a, err := Client(stateDir).Do(r)
	if err == nil {
		code = a.StatusCode
		answer, err = io.ReadAll(a.Body)
		err = errors.Join(err, a.Body.Close())
	}
	if err != nil {
		return 0, nil, cmp.Or(context.Cause(ctx), err)
	}
	return code, answer, nil
}

// Absent reports whether an error of a question says that no daemon runs with the state directory.
func Absent(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) }

// CheckConnections has the daemon with a state directory end the connections whose
// certificates were revoked. It does nothing if no daemon runs.
func CheckConnections(ctx context.Context, stateDir string) error {
	code, _, err := send(ctx, stateDir, http.MethodPost, "/connections/check", nil, askTime)
	switch {
	case Absent(err):
		return nil
	case err != nil:
		return fmt.Errorf("ask the host daemon at %s to end connections: %w", Socket(stateDir), err)
	case code != http.StatusNoContent:
		return fmt.Errorf("ask the host daemon at %s to end connections: it answers %d: restart it", Socket(stateDir), code)
	}
	return nil
}

// Ask requests the status of the daemon with a state directory.
func Ask(ctx context.Context, stateDir string) (Status, error) {
	var s Status
	_, answer, err := send(ctx, stateDir, http.MethodGet, "/status", nil, askTime)
	if err != nil {
		return s, asked(stateDir, err)
	}
	if err := json.Unmarshal(answer, &s); err != nil {
		return s, fmt.Errorf("read the host daemon's status: %w", err)
	}
	return s, nil
}

func asked(stateDir string, err error) error {
	fix := ""
	switch {
	case errors.Is(err, fs.ErrPermission):
		fix = ": run unnest with sudo"
	case !errors.Is(err, errSilent):
		fix = ": start it, or name its state directory with --state"
	}
	return fmt.Errorf("ask the host daemon at %s: %w%s", Socket(stateDir), err, fix)
}

// Detach has the daemon with a state directory take a NIC from its pod.
func Detach(ctx context.Context, stateDir string, d Detachment) error {
	code, answer, err := send(ctx, stateDir, http.MethodPost, "/nics/detach", d, detachTime)
	switch {
	case err != nil:
		return asked(stateDir, err)
	case code == http.StatusNotFound && strings.Contains(string(answer), "page not found"):
		return errors.New("detach: the host daemon is of an earlier version: update it")
	case code != http.StatusNoContent:
		return fmt.Errorf("detach: %s", strings.TrimSpace(string(answer)))
	}
	return nil
}
