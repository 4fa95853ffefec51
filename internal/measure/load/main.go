package load

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/workload"
)

// Main runs the program with its arguments and returns the exit code. It prints the report, or
// an error in its place, to stdout. With the flag wait it prints workload.Prepared to stderr
// before the load, and begins when it reads a line.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	load := request
	switch command := first(args); command {
	case "kafka":
		load = produce
	case "serve", "hold", "describe":
		if err := aside(ctx, command, args[1:], stdin, stdout, stderr); err != nil {
			fmt.Fprintln(stderr, err)
			return 1
		}
		return 0
	}
	report, err := load(ctx, args, stdin, stderr)
	if err != nil {
		report = workload.LoadReport{Error: err.Error()}
	}
	if encodeErr := json.NewEncoder(stdout).Encode(report); err == nil && encodeErr == nil {
		return 0
	}
	return 1
}

func first(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// aside does what a load between two pods needs: it serves a peer, keeps a container alive, or
// describes the machine.
func aside(ctx context.Context, command string, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	switch command {
	case "serve":
		return serve(ctx, args, stdin, stdout, stderr)
	case "describe":
		return describe(stdout)
	}
	<-ctx.Done()
	return nil
}

// request loads a server whose requests are ours.
func request(ctx context.Context, args []string, stdin io.Reader, stderr io.Writer) (workload.LoadReport, error) {
	connect, job, err := parse(args, stderr)
	if err != nil {
		return workload.LoadReport{}, err
	}
	runtime.GOMAXPROCS(job.Threads)
	return run(ctx, job, connect(job), func() error { return job.waits(ctx, stdin, stderr) })
}

func parse(args []string, stderr io.Writer) (func(Job) connector, Job, error) {
	var j Job
	if clients[first(args)] == nil {
		return nil, j, fmt.Errorf("want apache, connect, describe, echo, hold, kafka, memcached, nginx, serve or stream as first argument, got %q", args)
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&j.Target, "target", "", "`HOST:PORT` of the server")
	flags.IntVar(&j.Threads, "threads", 1, "threads")
	flags.IntVar(&j.Connections, "connections", 1, "connections over all threads")
	flags.IntVar(&j.Size, "size", 32, "`bytes` of values or of the file")
	flags.IntVar(&j.Rate, "rate", 0, "requests/s; 0: each connection sends when it has its answer")
	flags.DurationVar(&j.Warmup, "warmup", 0, "load before the measured part")
	flags.DurationVar(&j.Duration, "duration", time.Second, "of the measured part")
	flags.BoolVar(&j.Wait, "wait", false, "print a line when the server is prepared, and begin when a line is read")
	flags.DurationVar(&j.Patience, "patience", 0, "of apache, and of echo over udp: count a request without an answer after this time as failed; 0: a failure ends the load")
	flags.StringVar(&j.Protocol, "protocol", string(workload.TCP), "of echo: tcp or udp")
	flags.Func("sources", "of apache: `addresses` that the connections come from, separated by commas", j.addSources)
	if err := flags.Parse(args[1:]); err != nil {
		return nil, j, err
	}
	if j.Target == "" || flags.NArg() > 0 || min(j.Threads, j.Connections, j.Size) < 1 || j.Rate < 0 || j.Warmup < 0 || j.Duration <= 0 {
		return nil, j, errors.New("want -target and numbers over 0")
	}
	udp := j.Protocol == string(workload.UDP)
	if args[0] != "apache" && (j.Patience != 0 && !udp || len(j.Sources) > 0) || j.Patience < 0 {
		return nil, j, errors.New("-patience and -sources are of apache only, and -patience is at least 0")
	}
	if udp != (j.Patience > 0) && args[0] == modeEcho || udp && args[0] != modeEcho || j.Size < 8 && peers[args[0]] {
		return nil, j, errors.New("-protocol udp is of echo only, with -patience, and messages have 8 bytes or more")
	}
	j.Peer = peers[args[0]]
	return clients[args[0]], j, j.raiseDescriptors()
}

func (j *Job) addSources(list string) error {
	for address := range strings.SplitSeq(list, ",") {
		if address != "" && net.ParseIP(address) == nil {
			return fmt.Errorf("%q: want IP addresses", address)
		}
		if address != "" {
			j.Sources = append(j.Sources, address)
		}
	}
	return nil
}

// raiseDescriptors lets the process have as many file descriptors as it may, if the connections
// need more.
func (j *Job) raiseDescriptors() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read the limit of file descriptors: %w", err)
	}
	if limit.Cur >= uint64(2*j.Connections) {
		return nil
	}
	limit.Cur = limit.Max
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
}

// waits says that the server is prepared and waits to be told to begin.
func (j Job) waits(ctx context.Context, stdin io.Reader, stderr io.Writer) error {
	if !j.Wait {
		return nil
	}
	fmt.Fprintln(stderr, workload.Prepared)
	told := make(chan error, 1)
	go func() {
		_, err := bufio.NewReader(stdin).ReadString('\n')
		told <- err
	}()
	select {
	case err := <-told:
		if err != nil {
			return fmt.Errorf("wait to be told to begin: %w", err)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// describe prints the machine as JSON.
func describe(stdout io.Writer) error {
	m, err := describeMachine()
	if err != nil {
		return fmt.Errorf("describe the machine: %w", err)
	}
	return json.NewEncoder(stdout).Encode(m)
}

var (
	processors = regexp.MustCompile(`(?m)^cpu\d+ `)
	modelName  = regexp.MustCompile(`(?m)^model name\s*: (.*)$`)
)

// describeMachine counts all processors of the machine, also those that this process may not use.
func describeMachine() (m result.Machine, err error) {
	var names unix.Utsname
	if err := unix.Uname(&names); err != nil {
		return m, err
	}
	files := map[string][]byte{"/proc/stat": nil, "/proc/cpuinfo": nil, "/proc/meminfo": nil}
	for path := range files {
		if files[path], err = os.ReadFile(path); err != nil {
			return m, err
		}
	}
	m.Kernel, m.Arch = unix.ByteSliceToString(names.Release[:]), unix.ByteSliceToString(names.Machine[:])
	m.VCPUs = len(processors.FindAll(files["/proc/stat"], -1))
	if found := modelName.FindSubmatch(files["/proc/cpuinfo"]); found != nil {
		m.CPU = string(found[1])
	}
	for lines := bufio.NewScanner(bytes.NewReader(files["/proc/meminfo"])); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "MemTotal:"); ok {
			var kilobytes int64
			_, err = fmt.Sscan(text, &kilobytes)
			m.Memory = kilobytes << 10
		}
	}
	return m, err
}
