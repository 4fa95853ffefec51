package hostd

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/hostd/status"
)

const longID = "default-6f9d1f0b2a3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5d6"

var testNICs = []status.NIC{
	{Slot: 1, State: "foreign", Device: "net0"},
	{Slot: 2, State: "attached", Container: longID, Interface: "eth0", MAC: "0a:00:01:01:00:02", Addresses: []string{"10.201.1.2/16"}},
	{Slot: 3, State: "attached", Container: "web", Interface: "eth0", MAC: "0a:00:01:01:00:03"},
	{Slot: 4, State: "attached", Container: "web", Interface: "eth0", MAC: "0a:00:01:01:00:04", Pod: "shop", Fraction: 1},
	{VLAN: 5, State: "attached", Container: "web", Interface: "net1", MAC: "0a:00:01:01:01:05"},
}

func TestFindNIC(t *testing.T) {
	for _, c := range []struct{ name, mac, want string }{
		{longID + "/eth0", "0a:00:01:01:00:02", ""},
		{longID, "0a:00:01:01:00:02", ""},
		{"default-6f9d1f/eth0", "0a:00:01:01:00:02", ""},
		{"2", "0a:00:01:01:00:02", ""},
		{"0A:00:01:01:00:04", "0a:00:01:01:00:04", ""},
		{"web/net1", "0a:00:01:01:01:05", ""},
		{"web/eth0", "", "2 NICs match: web/eth0 with MAC 0a:00:01:01:00:03, web/eth0 with MAC 0a:00:01:01:00:04; name one by its MAC"},
		{"1", "", "no pod has such a NIC"},
		{"5", "", "no pod has such a NIC"},
		{"we", "", "no pod has such a NIC"},
		{"", "", "no pod has such a NIC"},
	} {
		n, err := findNIC(testNICs, c.name)
		if (err == nil) != (c.want == "") || err == nil && n.MAC != c.mac || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %s, %v; want %s, %q", c.name, n.MAC, err, c.mac, c.want)
		}
	}
}

// The status has whole IDs, with which a DEL by hand is possible, and the age of each NIC.
func TestPrintNICs(t *testing.T) {
	nics := []status.NIC{testNICs[1], testNICs[2]}
	nics[0].Since = time.Now().Add(-50*time.Hour - time.Minute)
	var out bytes.Buffer
	if err := printStatus(&out, status.Status{Guests: []status.Guest{{Name: "node1", NICs: nics}}}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), longID+"  eth0       0a:00:01:01:00:02  2d2h  10.201.1.2/16\n") {
		t.Errorf("got:\n%s", &out)
	}
	for d, want := range map[time.Duration]string{-time.Second: "0s", 59 * time.Second: "59s", 90 * time.Minute: "1h30m", 25 * time.Hour: "1d1h", 5 * time.Minute: "5m"} {
		now := time.Now()
		if got := age(status.NIC{Since: now.Add(-d)}, now); got != want {
			t.Errorf("%v: got %s, want %s", d, got, want)
		}
	}
}

// The command says what the pod loses and asks. Anything but yes detaches nothing.
func TestDetach(t *testing.T) {
	dir := t.TempDir()
	listener, err := net.Listen("unix", status.Socket(dir))
	if err != nil {
		t.Fatal(err)
	}
	detached := make(chan status.Detachment, 10)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(status.Status{Guests: []status.Guest{{Name: "node1", NICs: testNICs}, {Name: "node2", Error: "no answer"}}})
	})
	mux.HandleFunc("POST /nics/detach", func(w http.ResponseWriter, r *http.Request) {
		var d status.Detachment
		if err := json.NewDecoder(r.Body).Decode(&d); err != nil {
			t.Error(err)
		}
		detached <- d
		if d.Interface == "net1" {
			http.Error(w, "the guest keeps it", http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Close() })
	const asks = "container " + longID + " of node1 loses eth0 with 10.201.1.2/16, and all connections over it; its runtime does not notice"
	for _, c := range []struct {
		args     []string
		terminal bool
		answer   string
		want     string // in the output or the error
		detached bool
		fails    bool
	}{
		{[]string{"node1", longID}, false, "", asks + ": make sure that the container has ended, and use --yes", false, true},
		{[]string{"node1", longID}, true, "n\n", asks + ". Detach it? [y/N] ", false, true},
		{[]string{"node1", longID}, true, "y\n", asks + ". Detach it? [y/N] ", true, false},
		{[]string{"node1", "4", "--yes"}, false, "", "detaching web/eth0 from node1", true, false},
		{[]string{"node1", "web/net1", "--yes"}, false, "", "detach: the guest keeps it", true, true},
		{[]string{"node2", "4", "--yes"}, false, "", "guest node2 does not answer: no answer", false, true},
		{[]string{"node3", "4", "--yes"}, false, "", `the daemon has no guest "node3"`, false, true},
	} {
		var stderr bytes.Buffer
		streams := terminal.Streams{In: strings.NewReader(c.answer), Out: &stderr, Err: &stderr}
		if c.terminal {
			streams.ErrWidth = 80
		}
		cmd := NewCmd(streams, Run)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(append([]string{"detach", "--state", dir}, c.args...))
		err := cmd.ExecuteContext(t.Context())
		if err != nil {
			stderr.WriteString(err.Error())
		}
		if (err != nil) != c.fails || !strings.Contains(stderr.String(), c.want) || len(detached) > 0 != c.detached {
			t.Errorf("%q: got %v and %q, want %q, detached: %t", c.args, err, &stderr, c.want, c.detached)
		}
		if len(detached) > 0 {
			if d := <-detached; d.Guest != "node1" || d.Endpoint != (c.args[1] == "4") {
				t.Errorf("%q detaches %+v", c.args, d)
			}
		}
	}
}
