package multiplex

import (
	"errors"
	"net"
	"strings"
	"testing"
)

// A message whose handling panics ends its connection, not the process.
func TestPanicEndsConnection(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	closed := errors.New("closed")
	c := New[int](ours, "peer", closed)
	c.Start(func() error { panic("bug in decoder") })
	<-c.Done()
	if err := c.Err(); !errors.Is(err, closed) || !strings.Contains(err.Error(), "bug in decoder") || !strings.Contains(err.Error(), "multiplex_test.go") {
		t.Errorf("connection ended with %v, want the panic and its stack", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
