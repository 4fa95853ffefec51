// Command connections keeps TCP connections in use for a test: "serve ADDRESS" echoes lines, and
// "keep ADDRESS N" sends a line over each of N connections every second. keep prints each second
// how many connections are alive, were lost, and how many lines came back.
package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"time"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "serve" {
		fail(serve(os.Args[2]))
	}
	if len(os.Args) == 4 && os.Args[1] == "keep" {
		n, err := strconv.Atoi(os.Args[3])
		fail(err)
		keep(os.Args[2], n)
	}
	fail(fmt.Errorf("usage: connections serve ADDRESS | keep ADDRESS N"))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(address string) error {
	l, err := net.Listen("tcp", address)
	for err == nil {
		var c net.Conn
		if c, err = l.Accept(); err == nil {
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}
	return err
}

var alive, lost, lines atomic.Int64

func keep(address string, n int) {
	for range n {
		go connect(address)
		time.Sleep(5 * time.Millisecond) // a burst of new connections is not what is tested
	}
	for {
		fmt.Printf("alive %d lost %d lines %d\n", alive.Load(), lost.Load(), lines.Load())
		time.Sleep(time.Second)
	}
}

// connect tries until it has a connection, and then uses it until it breaks.
func connect(address string) {
	c, err := net.Dial("tcp", address)
	for ; err != nil; c, err = net.Dial("tcp", address) {
		time.Sleep(time.Second)
	}
	alive.Add(1)
	if err := use(c); err != nil {
		fmt.Println(err)
	}
	alive.Add(-1)
	lost.Add(1)
}

func use(c net.Conn) error {
	back := bufio.NewReader(c)
	for k := 0; ; k++ {
		if _, err := fmt.Fprintln(c, k); err != nil {
			return err
		}
		line, err := back.ReadString('\n')
		if err != nil {
			return err
		}
		if line != strconv.Itoa(k)+"\n" {
			return fmt.Errorf("line %d came back as %q", k, line)
		}
		lines.Add(1)
		time.Sleep(time.Second)
	}
}
