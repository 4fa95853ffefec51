package hostd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/docs/schemas"
	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/cli/version"
	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/hostapi/segment"
	"unnest.io/unnest/internal/hostd/status"
)

var update = flag.Bool("update", false, "rewrite the schema of the JSON")

func TestNewCmd(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want Options
	}{
		{nil, Options{Config: "/etc/unnest/hostd.yaml", State: "/var/lib/unnest"}},
		{[]string{"--config", "c", "--state=d", "--listen", "127.0.0.1:0", "--log-json", "-v"},
			Options{Config: "c", State: "d", Listen: "127.0.0.1:0", JSON: true, Verbose: true}},
	} {
		var got Options
		cmd := NewCmd(terminal.Streams{}, func(_ context.Context, o Options) error { got = o; return nil })
		cmd.SetArgs(tt.args)
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Errorf("%v: %v", tt.args, err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%v: options differ (-want +got):\n%s", tt.args, diff)
		}
	}
}

func TestWrongLines(t *testing.T) {
	dir := t.TempDir()
	file, empty := filepath.Join(dir, "file"), filepath.Join(dir, "empty")
	config := configFile(t, "")
	t.Setenv("KUBECONFIG", dir+"/nowhere")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if err := errors.Join(os.WriteFile(file, []byte("tenants: 5"), 0o600), os.WriteFile(empty, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"x"}, `unexpected argument "x"`},
		{[]string{"--config", dir + "/nowhere", "--state", dir}, "write one, or name it with --config"},
		{[]string{"--config", dir + "/no/where", "--state", dir}, "write one, or name it with --config"},
		{[]string{"policy", "run", "--server", "127.0.0.1:1", "--credentials", dir}, "find a cluster: no kubeconfig; set KUBECONFIG, or give --kubeconfig FILE"},
		{[]string{"--config", file, "--state", dir}, file + ":1: tenants: "},
		{[]string{"--config", config, "--state", file}, "open state directory: "},
		{[]string{"--config", config, "--state", dir, "--listen", "7443"}, `--listen "7443": want IP-ADDRESS:PORT`},
		{[]string{"status", "--state", dir}, "start it, or name its state directory with --state"},
		{[]string{"enroll", "--config", config, "--state", dir}, "missing argument GUEST"},
		{[]string{"enroll", "node1", "--config", config, "--state", dir}, "missing flag --output"},
		{[]string{"enroll", "node2", "--config", config, "--state", dir, "--output", dir}, "no such guest"},
		{[]string{"enroll", "node2", "--config", dir + "/nowhere", "--state", dir, "--output", dir}, "write one, or name it with --config"},
		{[]string{"revoke", "--state", dir}, "missing argument GUEST"},
		{[]string{"revoke", "node2", "--state", dir}, "no such guest: node2"},
	} {
		var stderr bytes.Buffer
		cmd := NewCmd(terminal.Streams{Err: &stderr}, Run)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(tt.args)
		err := cmd.ExecuteContext(t.Context())
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") || stderr.Len() > 0 {
			t.Errorf("%v: got %v and %q, want one line with %q", tt.args, err, &stderr, tt.want)
		}
	}
}

func TestServesUntilCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stderr := &watched{wait: "hostd: serving on 127.0.0.1:", seen: cancel}
	cmd := NewCmd(terminal.Streams{Err: stderr}, Run)
	cmd.SetArgs([]string{"--config", configFile(t, ""), "--state", t.TempDir(), "--listen", "127.0.0.1:0"})
	if err := cmd.ExecuteContext(ctx); err != nil {
		t.Error(err)
	}
}

// The status names the version that "unnest version" names.
func TestStatusNamesVersion(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	state, out := t.TempDir(), new(bytes.Buffer)
	var err error
	stderr := &watched{wait: "hostd: serving on 127.0.0.1:", seen: func() {
		defer cancel()
		ask := NewCmd(terminal.Streams{Out: out}, Run)
		ask.SetArgs([]string{"status", "--state", state})
		err = ask.ExecuteContext(ctx)
	}}
	cmd := NewCmd(terminal.Streams{Err: stderr}, Run)
	cmd.SetArgs([]string{"--config", configFile(t, ""), "--state", state, "--listen", "127.0.0.1:0"})
	if serveErr := cmd.ExecuteContext(ctx); serveErr != nil || err != nil {
		t.Fatal(serveErr, err)
	}
	build := version.Get()
	if want := "unnest hostd " + build.Version + " (revision " + build.Revision + "), "; !strings.HasPrefix(out.String(), want) {
		t.Errorf("got %q, want %q", out, want)
	}
}

// With --log-json every line is JSON.
func TestLogJSON(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var lines []string
	stderr := writerFunc(func(p []byte) {
		lines = append(lines, strings.Split(strings.TrimSpace(string(p)), "\n")...)
		if strings.Contains(string(p), `"address":"127.0.0.1:`) {
			cancel()
		}
		if strings.Contains(string(p), "hostd: serving") {
			cancel()
		}
	})
	cmd := NewCmd(terminal.Streams{Err: stderr}, Run)
	cmd.SetArgs([]string{"--config", configFile(t, ""), "--state", t.TempDir(), "--listen", "127.0.0.1:0", "--log-json"})
	if err := cmd.ExecuteContext(ctx); err != nil {
		t.Error(err)
	}
	if len(lines) == 0 {
		t.Error("no lines")
	}
	for _, line := range lines {
		if !json.Valid([]byte(line)) {
			t.Errorf("line is not JSON: %s", line)
		}
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}

// The status says until when a guest's certificate is valid, also of a guest that does not run.
func TestPrintValidity(t *testing.T) {
	now := time.Now()
	var out bytes.Buffer
	if err := printStatus(&out, status.Status{Guests: []status.Guest{
		{Name: "node1", CertificateExpires: now.Add(48 * time.Hour)}, {Name: "node2", Error: "no answer", CertificateExpires: now.Add(-48 * time.Hour)}, {Name: "node3"},
	}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"until " + now.Add(48*time.Hour).Format(time.DateOnly), "expired " + now.Add(-48*time.Hour).Format(time.DateOnly) + "  no answer", "node3  ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got:\n%s\nwant %q", &out, want)
		}
	}
}

// With segments the status has one more table.
func TestPrintStatus(t *testing.T) {
	s := status.Status{Version: "v1", Protocol: 3, Listen: "10.0.0.1:1", Tenants: []status.Tenant{{Name: "shop", Bridge: "br0"}}}
	var without, with bytes.Buffer
	if err := printStatus(&without, s); err != nil || strings.Contains(without.String(), "POD") {
		t.Errorf("got %v and:\n%s", err, &without)
	}
	s.Tenants[0].Policies = &status.Policies{Unkept: "no space", Refused: []string{"big", "huge"}}
	if err := printStatus(&with, s); err != nil || !strings.Contains(with.String(), "until the policy client is back: no space\n") || !strings.Contains(with.String(), "fewer rules, peers or ports: big, huge\n") {
		t.Errorf("got %v and:\n%s", err, &with)
	}
	with.Reset()
	s.Tenants[0].Policies = &status.Policies{}
	s.Segments = []status.Segment{{
		Tenant: "shop", Pod: "web", Mode: "unicast", TAP: "hlo0",
		Fractions: []status.Fraction{{Fraction: 1, Guest: "node1", Member: true}, {Fraction: 2, Guest: "node2"}},
		Counts:    map[segment.Fraction]status.Frames{0: {Unknown: 1}, 1: {Frames: 5, Spoofed: 2}, 2: {Frames: 2, Limited: 3, Oversize: 4}},
	}}
	if err := printStatus(&with, s); err != nil {
		t.Fatal(err)
	}
	want := `
TENANT  POD  MODE     TAP   FRAMES  DROPPED  FRACTIONS
shop    web  unicast  hlo0  7       10       1 node1, 2 node2 (not ready)
`
	if got, ok := strings.CutPrefix(with.String(), without.String()); !ok || got != want {
		t.Errorf("got:\n%s\nwant the same as without segments, and:\n%s", &with, want)
	}
}

// The JSON of the status follows its schema in docs/schemas.
func TestPrintStatusJSON(t *testing.T) {
	var out bytes.Buffer
	if err := printStatusJSON(&out, status.Status{Version: "1.0", Guests: []status.Guest{{Name: "node1", NICs: testNICs}}}); err != nil {
		t.Fatal(err)
	}
	o := schemas.Output{Name: "hostd-status", Title: "unnest hostd status --json", Version: status.SchemaVersion, Value: status.Status{}}
	if err := o.Test("../../..", *update, out.Bytes()); err != nil {
		t.Error(err)
	}
}

// The status lists ports that may send anything, with the cause.
func TestPrintUnguarded(t *testing.T) {
	var out bytes.Buffer
	if err := printStatus(&out, status.Status{Unguarded: []status.Port{
		{Tenant: "shop", Bridge: "br0", Interface: "tap1", Guest: "node1", Cause: "no addresses"}, {Tenant: "shop", Bridge: "br0", Interface: "tap9", Cause: "no guest has it"},
	}}); err != nil {
		t.Fatal(err)
	}
	want := `
UNGUARDED PORT  BRIDGE  TENANT  GUEST  CAUSE
tap1            br0     shop    node1  no addresses
tap9            br0     shop    -      no guest has it
`
	if !strings.HasSuffix(out.String(), want) {
		t.Errorf("got:\n%s\nwant at its end:\n%s", &out, want)
	}
}

// The status lists what guests do not give up.
func TestPrintKept(t *testing.T) {
	var out bytes.Buffer
	err := printStatus(&out, status.Status{Guests: []status.Guest{{Name: "node1", Shared: []status.Share{
		{Kind: "volume", Pod: "shop.u1", Name: "data", Kept: true}, {Kind: "volume", Pod: "shop.u2", Name: "data", Port: 1},
	}}}})
	if want := "node1  -     keeps volume data  shop.u1\n"; err != nil || !strings.Contains(out.String(), want) || strings.Contains(out.String(), "shop.u2") {
		t.Errorf("%v, got:\n%s\nwant the line %q", err, &out, want)
	}
}

// configFile writes a configuration with one tenant, one guest, and more.
func configFile(t *testing.T, more string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hostd.yaml")
	content := `tenants: [{name: default, bridge: br0}]
guests: [{name: node1, tenant: default, qmp: /nowhere/qmp, index: 1}]
` + more
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Enrolling a guest writes the files of its plugin. It never overwrites them.
func TestEnroll(t *testing.T) {
	config, state, out := configFile(t, ""), t.TempDir(), t.TempDir()
	enroll := func() error {
		cmd := NewCmd(terminal.Streams{Err: io.Discard}, Run)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs([]string{"enroll", "node1", "--config", config, "--state", state, "--output", out})
		return cmd.ExecuteContext(t.Context())
	}
	if err := enroll(); err != nil {
		t.Fatal(err)
	}
	if _, err := identity.ClientConfig(out); err != nil {
		t.Error(err)
	}
	before, err := os.ReadFile(filepath.Join(out, identity.KeyFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := enroll(); err == nil {
		t.Error("a second time: there was no error")
	}
	after, err := os.ReadFile(filepath.Join(out, identity.KeyFile))
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the key has changed (%v)", err)
	}
}

// A certificate is revoked by its serial number, and then all are.
func TestRevoke(t *testing.T) {
	config, state := configFile(t, ""), t.TempDir()
	call := func(args ...string) (string, error) {
		var out bytes.Buffer
		cmd := NewCmd(terminal.Streams{Out: &out, Err: &out}, Run)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(append(args, "--config", config, "--state", state))
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
	dir := t.TempDir()
	if _, err := call("enroll", "node1", "--output", dir); err != nil {
		t.Fatal(err)
	}
	c, err := identity.ClientConfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	serial := identity.Serial(c.Certificates[0].Leaf)
	if out, err := call("revoke", "node1", "--serial", "beef"); err == nil || !strings.Contains(err.Error(), "no certificate has the serial number beef") {
		t.Errorf("unknown serial: got %q, %v", out, err)
	}
	want := "revoked the certificate of node1 with serial number " + serial + ", valid until "
	if out, err := call("revoke", "node1", "--serial", serial); err != nil || !strings.HasPrefix(out, want) {
		t.Errorf("got %q, %v; want %q", out, err, want)
	}
	if out, err := call("revoke", "node1"); err != nil || out != "node1 has no valid certificate to revoke\n" {
		t.Errorf("a second time: got %q, %v", out, err)
	}
}

// The status lists the certificates of a guest that has several.
func TestPrintCertificates(t *testing.T) {
	expires := time.Date(2099, 1, 2, 0, 0, 0, 0, time.UTC)
	var out bytes.Buffer
	if err := printStatus(&out, status.Status{Guests: []status.Guest{
		{Name: "node1", CertificateExpires: expires, Certificates: []status.Certificate{
			{Serial: "a1", Expires: expires, State: "superseded"}, {Serial: "b2", Expires: expires, State: "used"}}},
		{Name: "node2", Certificates: []status.Certificate{{Serial: "c3", Expires: expires, State: "revoked"}}},
	}}); err != nil {
		t.Fatal(err)
	}
	want := `
GUEST  CERTIFICATE  EXPIRES     STATE
node1  a1           2099-01-02  superseded
node1  b2           2099-01-02  used
`
	if !strings.HasSuffix(out.String(), want) || !strings.Contains(out.String(), "node2          revoked  ") {
		t.Errorf("got:\n%s\nwant at the end:\n%s", &out, want)
	}
}

// watched calls seen when a line begins with wait.
type watched struct {
	wait string
	seen func()
}

func (w *watched) Write(p []byte) (int, error) {
	if strings.HasPrefix(string(p), w.wait) {
		w.seen()
	}
	return len(p), nil
}

// The credentials of a policy client are issued for a tenant of the configuration, and
// revoked once.
func TestPolicy(t *testing.T) {
	config, state, out := configFile(t, ""), t.TempDir(), t.TempDir()
	call := func(args ...string) error {
		cmd := NewCmd(terminal.Streams{Out: io.Discard, Err: io.Discard}, Run)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(append([]string{"policy"}, append(args, "--config", config, "--state", state)...))
		return cmd.ExecuteContext(t.Context())
	}
	if err := call("enroll", "nobody", "--output", out); err == nil || !strings.Contains(err.Error(), "no such tenant") {
		t.Errorf("unknown tenant: got %v", err)
	}
	if err := call("enroll", "default"); err == nil || !strings.Contains(err.Error(), "missing flag --output") {
		t.Errorf("no directory: got %v", err)
	}
	if err := call("enroll", "default", "--output", out); err != nil {
		t.Fatal(err)
	}
	c, err := identity.ClientConfig(out)
	if err != nil {
		t.Fatal(err)
	}
	if tenant, err := identity.PolicyTenant(c.Certificates[0].Leaf); tenant != "default" || err != nil {
		t.Errorf("the certificate is that of tenant %q (%v), want default", tenant, err)
	}
	if err := call("revoke", "default"); err != nil {
		t.Error(err)
	}
	if err := call("revoke", "default"); err == nil {
		t.Error("revoked twice: there was no error")
	}
}
