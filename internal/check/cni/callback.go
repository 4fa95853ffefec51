package cni

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
)

// callTime bounds one call, there and back.
const callTime = 15 * time.Second

// ServeCalls answers each connection by one of its own: it reads a port number,
// in one line, and connects to that port of whoever has called. A pod behind NAT
// is not reached so. It returns when ctx ends, with nil, or l fails.
func ServeCalls(ctx context.Context, l net.Listener) error {
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	for {
		c, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept a call: %w", err)
		}
		go answerCall(ctx, c)
	}
}

// answerCall tells the caller why it could not be reached.
func answerCall(ctx context.Context, c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(callTime))
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return
	}
	host, _, err := net.SplitHostPort(c.RemoteAddr().String())
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	back, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(host, strings.TrimSpace(line)))
	if err != nil {
		_, _ = fmt.Fprintln(c, err)
		return
	}
	_ = back.Close()
	_, _ = fmt.Fprintln(c, "ok")
}

// beCalled asks the server to connect to the network namespace, and waits for it.
func beCalled(ctx context.Context, netns, server string) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	var l net.Listener
	var c net.Conn
	err := ns.WithNetNSPath(netns, func(ns.NetNS) (err error) {
		if l, err = new(net.ListenConfig).Listen(ctx, "tcp", ":0"); err != nil {
			return err
		}
		c, err = new(net.Dialer).DialContext(ctx, "tcp", server)
		return err
	})
	if l != nil {
		defer l.Close()
	}
	if err != nil {
		return fmt.Errorf("ask %s for a call: %w", server, err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(callTime))
	if _, err := fmt.Fprintln(c, strconv.Itoa(l.Addr().(*net.TCPAddr).Port)); err != nil {
		return fmt.Errorf("ask %s for a call: %w", server, err)
	}
	answer, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return fmt.Errorf("wait for the call of %s: %w", server, err)
	}
	if answer = strings.TrimSpace(answer); answer != "ok" {
		return errors.New(server + " does not reach the pod: " + answer)
	}
	return nil
}
