package doctor

import (
	"context"
	"fmt"
	"net"
	"time"

	"unnest.io/unnest/internal/measure/stats"
)

// workTime is about what one piece of work takes.
const workTime = 200 * time.Millisecond

// work is a piece of work of a fixed size, and the times that it took: twice in each block.
type work struct {
	name          string
	steps         int
	do            func(steps int) error
	first, second []stats.Observation
}

// newWorks returns what a server spends its time with, each sized to workTime.
func newWorks() ([]*work, error) {
	works := []*work{{name: "Computing", do: compute}, {name: "UDP round trips on this machine", do: roundTrips}}
	for _, w := range works {
		for w.steps = 1; ; w.steps *= 2 {
			first, err := w.time()
			if err != nil {
				return nil, err
			}
			second, err := w.time()
			if err != nil {
				return nil, err
			}
			if min(first, second) > workTime/2 { // one of them may have waited for a processor
				break
			}
		}
	}
	return works, nil
}

func (w *work) time() (time.Duration, error) {
	begin := time.Now()
	err := w.do(w.steps)
	return time.Since(begin), err
}

// repeat does each work twice per block, until d has passed.
func repeat(ctx context.Context, works []*work, d time.Duration) error {
	for block, end := 0, time.Now().Add(d); time.Now().Before(end); block++ {
		for _, w := range works {
			for _, to := range []*[]stats.Observation{&w.first, &w.second} {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				took, err := w.time()
				if err != nil {
					return fmt.Errorf("measure noise: %s: %w", w.name, err)
				}
				*to = append(*to, stats.Observation{Block: block, Value: took.Seconds()})
			}
		}
	}
	return nil
}

// sink keeps the compiler from leaving the work out.
var sink uint64

func compute(steps int) error {
	x := sink | 1
	for range steps {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	sink = x
	return nil
}

// roundTrips sends datagrams to a socket of this process, one at a time, which sends them
// back.
func roundTrips(steps int) error {
	server, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	defer server.Close()
	go echo(server)
	client, err := net.DialUDP("udp4", nil, server.LocalAddr().(*net.UDPAddr))
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	message := make([]byte, 64)
	for range steps {
		if _, err := client.Write(message); err != nil {
			return err
		}
		if _, err := client.Read(message); err != nil {
			return err
		}
	}
	return nil
}

// echo returns datagrams to their senders until the socket is closed.
func echo(server *net.UDPConn) {
	message := make([]byte, 64)
	for {
		n, from, err := server.ReadFromUDPAddrPort(message)
		if err != nil {
			return
		}
		_, _ = server.WriteToUDPAddrPort(message[:n], from)
	}
}
