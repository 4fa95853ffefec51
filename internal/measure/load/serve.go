package load

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"unnest.io/unnest/internal/measure/workload"
)

// serve answers peers until the context ends. With the flag attached it also ends with its input, which a
// container's engine closes when nobody waits for the process any more.
func serve(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	flags.SetOutput(stderr)
	listen := flags.String("listen", ":17799", "`ADDRESS:PORT` of TCP and UDP")
	attached := flags.Bool(strings.TrimPrefix(workload.AttachedFlag, "-"), false, "end when the input ends")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if *attached {
		go func() {
			defer cancel()
			_, _ = io.Copy(io.Discard, stdin)
		}()
	}
	streams, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	defer streams.Close()
	datagrams, err := net.ListenPacket("udp", *listen)
	if err != nil {
		return err
	}
	defer datagrams.Close()
	context.AfterFunc(ctx, func() { _, _ = streams.Close(), datagrams.Close() })
	if _, err := fmt.Fprintln(stdout, workload.PeerReady); err != nil {
		return err
	}
	var all errgroup.Group
	all.Go(func() error { return echoDatagrams(datagrams) })
	all.Go(func() error { return acceptPeers(streams) })
	if err := all.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}

func echoDatagrams(from net.PacketConn) error {
	buffer := make([]byte, 1<<16)
	for {
		n, client, err := from.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err == nil {
			_, _ = from.WriteTo(buffer[:n], client) // its client counts it as lost
		}
	}
}

func acceptPeers(listener net.Listener) error {
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // no file descriptor is free
			continue
		}
		go func() {
			defer conn.Close()
			_ = servePeer(conn) // the client sees the end of the connection
		}()
	}
}

// servePeer serves a connection until the client ends it.
func servePeer(conn net.Conn) error {
	r := bufio.NewReader(conn)
	line, err := r.ReadString('\n')
	if err != nil {
		return err
	}
	mode, text, _ := strings.Cut(strings.TrimSpace(line), " ")
	size, err := strconv.Atoi(text)
	if err != nil || size < 1 || size > maxMessage {
		return fmt.Errorf("message size %q", text)
	}
	buffer := make([]byte, size)
	switch mode {
	case modeEcho:
		for err == nil {
			err = echoOnce(conn, r, buffer)
		}
		return err
	case modeConnect:
		return echoOnce(conn, r, buffer)
	case modeStream:
		return discard(r)
	case modeStat:
		return answerReadings(conn, r)
	}
	return fmt.Errorf("mode %q", mode)
}

const maxMessage = 1 << 20

func echoOnce(to io.Writer, from io.Reader, buffer []byte) error {
	if _, err := io.ReadFull(from, buffer); err != nil {
		return err
	}
	_, err := to.Write(buffer)
	return err
}

// discard reads everything in large pieces.
func discard(from io.Reader) error {
	buffer := make([]byte, 256<<10)
	for {
		if _, err := from.Read(buffer); err != nil {
			return err
		}
	}
}

// answerReadings answers each line with a reading of this machine.
func answerReadings(to io.Writer, from *bufio.Reader) error {
	for {
		if _, err := from.ReadString('\n'); err != nil {
			return err
		}
		reading, err := readMachine()
		if err != nil {
			return err
		}
		if err := json.NewEncoder(to).Encode(reading); err != nil {
			return err
		}
	}
}

// readMachine reads what the kernel of this machine counts, which a pod sees as its node does.
func readMachine() (workload.MachineReading, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return workload.MachineReading{}, fmt.Errorf("read the machine's boot: %w", err)
	}
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return workload.MachineReading{}, fmt.Errorf("read the machine's CPU time: %w", err)
	}
	line, _, _ := strings.Cut(string(stat), "\n")
	return workload.MachineReading{Boot: strings.TrimSpace(string(boot)), Stat: line}, nil
}
