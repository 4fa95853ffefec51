package load

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/measure/cputime"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/workload"
)

// servePeers runs the server as its own command, and returns its address and how to end it.
func servePeers(t *testing.T) (address string, end func() int) {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address = free.Addr().String()
	free.Close()
	in, stdin := io.Pipe()
	out, stdout := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- Main([]string{"serve", "-listen", address, workload.AttachedFlag}, in, stdout, t.Output())
	}()
	ready := make([]byte, len(workload.PeerReady)+1)
	if _, err := io.ReadFull(out, ready); err != nil || string(ready) != workload.PeerReady+"\n" {
		t.Fatalf("the server prints %q, %v", ready, err)
	}
	return address, func() int {
		stdin.Close()
		return <-code
	}
}

// loadPeer runs a client as its own command.
func loadPeer(t *testing.T, args ...string) (report workload.LoadReport, code int) {
	t.Helper()
	var out bytes.Buffer
	code = Main(args, strings.NewReader(""), &out, t.Output())
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatalf("%q prints %q: %v", args, &out, err)
	}
	return report, code
}

// Each load gets answers and the CPU times of both machines, here the same. An attached server ends with its
// input.
func TestPeers(t *testing.T) {
	address, end := servePeers(t)
	for name, protocol := range map[string]string{"echo": "tcp", "connect": "tcp", "stream": "tcp", "echo udp": "udp"} {
		args := []string{strings.Fields(name)[0], "-target", address, "-protocol", protocol, "-size", "1280", "-warmup", "100ms", "-duration", "1s"} // longer than a busy machine stands still
		if protocol == "udp" {
			args = append(args, "-patience", "1s")
		}
		r, code := loadPeer(t, args...)
		if code != 0 || r.Error != "" || !(r.Latencies[workload.AllRequests].Count > 0) || r.Answers <= r.Latencies[workload.AllRequests].Count {
			t.Errorf("%s: exit code %d, %+v", name, code, r)
			continue
		}
		if len(r.Before) != 2 || len(r.After) != 2 || r.Before[0].Boot == "" || r.Before[0].Boot != r.After[1].Boot {
			t.Errorf("%s: readings %+v, %+v", name, r.Before, r.After)
		}
		for _, reading := range append(r.Before, r.After...) {
			if _, err := cputime.Parse([]byte(reading.Stat)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if code := end(); code != 0 {
		t.Errorf("the server ended with %d", code)
	}
}

// Datagrams to a port without a server are lost, and the client still ends.
func TestDatagramsLost(t *testing.T) {
	c := &datagramClient{&peerClient{out: make([]byte, 64), in: make([]byte, 64)}}
	black, err := net.ListenPacket("udp", "127.0.0.1:0") // nobody reads
	if err != nil {
		t.Fatal(err)
	}
	defer black.Close()
	c.job = Job{Target: black.LocalAddr().String(), Size: 64, Duration: time.Second}
	if err := c.prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, cause := c.sendWithin(10 * time.Millisecond); cause != workload.TimedOut {
		t.Errorf("the cause is %q", cause)
	}
}

// An echo that comes too late is not taken for that of the next datagram.
func TestLateEcho(t *testing.T) {
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		buffer := make([]byte, 64)
		for {
			n, from, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = server.WriteTo(buffer[:n], from)
		}
	}()
	conn, err := net.Dial("udp", server.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := &datagramClient{&peerClient{conn: conn, out: make([]byte, 8), in: make([]byte, 8)}}
	if _, err := conn.Write(bytes.Repeat([]byte{0}, 8)); err != nil { // its echo comes first
		t.Fatal(err)
	}
	if n, cause := c.sendWithin(10 * time.Second); cause != "" || n != 16 {
		t.Errorf("after a late echo: got %d bytes, %q", n, cause)
	}
}

func TestWrongPeerArguments(t *testing.T) {
	for _, args := range [][]string{
		{"echo", "-target", "127.0.0.1:1", "-protocol", "udp"}, {"connect", "-target", "127.0.0.1:1", "-protocol", "udp", "-patience", "1s"},
		{"stream", "-target", "127.0.0.1:1", "-size", "4"}, {"serve", "-listen", "127.0.0.1:99999"},
	} {
		if code := Main(args, strings.NewReader(""), io.Discard, io.Discard); code != 1 {
			t.Errorf("%q: exit code %d", args, code)
		}
	}
}

func TestDescribe(t *testing.T) {
	var out bytes.Buffer
	if code := Main([]string{"describe"}, strings.NewReader(""), &out, t.Output()); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	var m result.Machine
	if err := json.Unmarshal(out.Bytes(), &m); err != nil || m.Kernel == "" || m.Arch == "" || m.VCPUs < 1 || m.Memory < 1<<20 {
		t.Errorf("got %+v, %v", m, err)
	}
}
