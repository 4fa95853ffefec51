package qemu

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"unnest.io/unnest/internal/vmm"
	"unnest.io/unnest/internal/vmm/qmp"
)

// refusing is a QEMU that answers everything, but refuses the first netdevs.
func refusing(t *testing.T, refusals int, why string) (v *VMM, executed func() []string) {
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "qmp"))
	if err != nil {
		t.Fatal(err)
	}
	var commands []string
	ended := make(chan error, 1)
	go func() { ended <- answer(listener, &commands, refusals, why) }()
	client, err := qmp.Dial(t.Context(), listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return &VMM{client: client, events: client.Subscribe(qmp.EventReset)}, func() []string {
		if err := errors.Join(client.Close(), <-ended, listener.Close()); err != nil {
			t.Error(err)
		}
		return commands
	}
}

// answer serves one connection until it ends, and appends its commands.
func answer(listener net.Listener, commands *[]string, refusals int, why string) error {
	conn, err := listener.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = fmt.Fprintln(conn, `{"QMP": {"version": {"qemu": {"micro": 0, "minor": 2, "major": 7}, "package": ""}, "capabilities": []}}`)
	for lines := bufio.NewScanner(conn); err == nil && lines.Scan(); {
		var c struct {
			Execute string
			ID      json.RawMessage
		}
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return err
		}
		reply := `"return": {}`
		if c.Execute == "netdev_add" && refusals > 0 {
			refusals--
			reply = fmt.Sprintf(`"error": {"class": "GenericError", "desc": %q}`, why)
		}
		*commands = append(*commands, c.Execute)
		_, err = fmt.Fprintf(conn, "{%s, \"id\": %s}\n", reply, c.ID)
	}
	return err
}

// A descriptor that QEMU has lost is sent again, once. Another refusal stays one. It is not known how to make a real
// QEMU lose one: 6,000 connections that ended while they handed a descriptor over did not.
func TestLostDescriptor(t *testing.T) {
	lost := "net1: Can't use file descriptor 35: Bad file descriptor"
	for _, test := range []struct {
		refusals int
		why      string
		refused  bool
		want     string
	}{
		{1, lost, false, "getfd netdev_add getfd netdev_add"},
		{2, lost, true, "getfd netdev_add getfd netdev_add closefd closefd"},
		{1, "Duplicate ID 'net1'", true, "getfd netdev_add closefd closefd"},
	} {
		v, executed := refusing(t, test.refusals, test.why)
		err := v.AddNetdev(t.Context(), "net1", vmm.TAP{Name: "tap1", Queues: []vmm.Queue{{File: os.Stdin}}})
		if refused := errors.As(err, new(*vmm.RefusedError)); refused != test.refused || err != nil && !refused {
			t.Errorf("%d times %q: got %v", test.refusals, test.why, err)
		}
		got := slices.DeleteFunc(executed(), func(c string) bool { return c == "qmp_capabilities" })
		if strings.Join(got, " ") != test.want {
			t.Errorf("%d times %q: executed %v, want %s", test.refusals, test.why, got, test.want)
		}
	}
}
