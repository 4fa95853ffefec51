package cni

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
)

// callBackTime bounds one request and the connection that it asks for.
const callBackTime = time.Minute

// ServeCallBack reads a port number, in one line, from each connection, and connects to
// that port of the client. This fails for a pod behind NAT. It returns nil when ctx ends,
// or the error of l.
func ServeCallBack(ctx context.Context, l net.Listener) error {
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	for {
		c, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept a connection: %w", err)
		}
		go callBack(ctx, c)
	}
}

// callBack answers "ok", or why it could not connect to the client.
func callBack(ctx context.Context, c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(callBackTime))
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return
	}
	host, _, err := net.SplitHostPort(c.RemoteAddr().String())
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, callBackTime)
	defer cancel()
	back, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(host, strings.TrimSpace(line)))
	if err != nil {
		_, _ = fmt.Fprintln(c, err)
		return
	}
	_ = back.Close()
	_, _ = fmt.Fprintln(c, "ok")
}

// requestCallBack has the server connect to a port in the network namespace.
func requestCallBack(ctx context.Context, netns, server string) error {
	ctx, cancel := context.WithTimeout(ctx, callBackTime)
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
		return fmt.Errorf("ask %s to call back: %w", server, err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(callBackTime))
	if _, err := fmt.Fprintln(c, l.Addr().(*net.TCPAddr).Port); err != nil {
		return fmt.Errorf("ask %s to call back: %w", server, err)
	}
	answer, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return fmt.Errorf("wait for %s to call back: %w", server, err)
	}
	if answer = strings.TrimSpace(answer); answer != "ok" {
		return errors.New(server + " cannot reach the pod: " + answer)
	}
	return nil
}
