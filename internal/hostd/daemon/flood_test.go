package daemon

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostapi/hostdpb"
)

// A guest's client learns how much metadata a request may have.
func TestMetadataIsBounded(t *testing.T) {
	dir := t.TempDir()
	config, c := issue(t, dir, "node1")
	withRecord(t, dir, c)
	d := dial(t, start(t, dir), config)
	for _, c := range []struct {
		bytes int
		code  codes.Code
	}{{8 << 10, codes.Unavailable}, {16<<10 + 1, codes.Internal}} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x", strings.Repeat("y", c.bytes))
		_, err := d.Status(ctx, &hostdpb.StatusRequest{})
		if grpcstatus.Code(err) != c.code {
			t.Errorf("%d bytes of metadata: got %v, want %v", c.bytes, err, c.code)
		}
	}
}

// A hostile client ignores the limit. The daemon reads no more of it than the limit.
func TestHostileMetadata(t *testing.T) {
	dir := t.TempDir()
	config, c := issue(t, dir, "node1")
	withRecord(t, dir, c)
	config.NextProtos = []string{"h2"}
	conn, err := tls.Dial("tcp", start(t, dir), config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", "https"}, {":authority", "x"}, {":path", hostdpb.HostDaemon_Status_FullMethodName},
		{"content-type", "application/grpc"}, {"te", "trailers"}, {"x", strings.Repeat("~", 8<<20)},
	} {
		if err := e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			t.Fatal(err)
		}
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	go func() { // fails when the daemon hangs up
		for first := true; block.Len() > 0; first = false {
			part := block.Next(16 << 10)
			end := block.Len() == 0
			if first {
				err = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: part, EndHeaders: end})
			} else {
				err = framer.WriteContinuation(1, end, part)
			}
			if err != nil {
				return
			}
		}
		_ = framer.WriteData(1, true, []byte{0, 0, 0, 0, 0})
	}()
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	for {
		f, err := framer.ReadFrame()
		if err != nil {
			if errors.Is(err, io.EOF) || !errors.As(err, new(net.Error)) || strings.Contains(err.Error(), "reset") {
				return // the daemon has hung up
			}
			t.Fatalf("the daemon neither refused the request nor hung up: %v", err)
		}
		switch f := f.(type) {
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return
		case *http2.HeadersFrame:
			t.Fatalf("the daemon answered: %v", f)
		}
	}
}

// A guest sends the headers and half the message of many requests on one connection: the daemon ends those beyond
// a number at once, and another guest's request is served meanwhile.
func TestAttackHalfSentRequests(t *testing.T) {
	dir := t.TempDir()
	config, c := issue(t, dir, "node1")
	withRecord(t, dir, c)
	address := start(t, dir)
	half := config.Clone()
	half.NextProtos = []string{"h2"}
	conn, err := tls.Dial("tcp", address, half)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	const requests = 48
	for i := range uint32(requests) {
		var block bytes.Buffer
		e := hpack.NewEncoder(&block)
		for _, f := range [][2]string{
			{":method", "POST"}, {":scheme", "https"}, {":authority", "x"}, {":path", hostdpb.HostDaemon_Status_FullMethodName},
			{"content-type", "application/grpc"}, {"te", "trailers"},
		} {
			if err := e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: block.Bytes(), EndHeaders: true}),
			framer.WriteData(2*i+1, false, []byte{0, 0, 0, 4, 0, 1})); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	ended := map[uint32]bool{}
	for len(ended) < requests {
		f, err := framer.ReadFrame()
		if err != nil {
			t.Fatalf("%d of %d requests have ended: %v", len(ended), requests, err)
		}
		switch f.(type) {
		case *http2.RSTStreamFrame, *http2.HeadersFrame:
			ended[f.Header().StreamID] = true
		}
		if len(ended) == 1 { // those beyond the number; the others end after their time
			if _, err := dial(t, address, config).Status(t.Context(), &hostdpb.StatusRequest{}); err == nil || !strings.Contains(err.Error(), "VMM") {
				t.Errorf("another request meanwhile: got %v, want it to be served", err)
			}
		}
	}
}
