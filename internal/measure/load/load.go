// Package load loads a server of an application over a network: in a closed loop, in which
// each connection waits for its answer before it sends the next request, or at a constant
// rate by a schedule. It checks every answer.
//
// What is recorded, and when a request is due, belongs to package pacing; which server is
// loaded how much to package workload.
package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/measure/load/pacing"
	"unnest.io/unnest/internal/measure/workload"
)

// Job is one load.
type Job struct {
	Target      string // HOST:PORT
	Threads     int
	Connections int
	Size        int // of values or of the file, in bytes
	Rate        int // requests/s; 0: closed loop
	Warmup      time.Duration
	Duration    time.Duration
	Wait        bool // to be told to begin

	Patience time.Duration // with an answer for a request from when it is due; 0: a failure ends the load
	Protocol string        // of a peer: tcp or udp
	Peer     bool          // the server is of this program, and tells what its machine does
	Sources  []string      // addresses that the connections come from in turn; none: that of the route
}

// client is one connection to a server.
type client interface {
	// prepare connects, and brings the server's data into the state that the load expects.
	prepare(ctx context.Context) error
	// send sends request number n of this connection, waits for the answer, checks it, and
	// returns the kind of the request.
	send(n int) (kind string, err error)
}

// patient is a client whose failures are counted.
type patient interface {
	// sendWithin sends a request and waits for the answer. It returns the bytes of both, and
	// why there is no right answer within the limit; empty: there is one.
	sendWithin(limit time.Duration) (bytes int, cause string)
}

type connector func(connection int) client

var clients = map[string]func(Job) connector{
	"apache": documentClients, "memcached": memcachedClients, "nginx": httpClients,
	modeEcho: peerClients(modeEcho), modeConnect: peerClients(modeConnect), modeStream: peerClients(modeStream),
}

var peers = map[string]bool{modeEcho: true, modeConnect: true, modeStream: true}

// answerTimeout bounds the wait for one answer.
const answerTimeout = 10 * time.Second

// generator is a load that runs.
type generator struct {
	job      Job
	clients  []client
	schedule pacing.Schedule
	start    time.Time
	end      time.Duration // of the load, from start

	mu       sync.Mutex
	recorder *pacing.Recorder
}

// run connects, prepares the server, waits, loads the server and returns the report. The first
// wrong answer ends it.
func run(ctx context.Context, j Job, connect connector, wait func() error) (workload.LoadReport, error) {
	g := &generator{
		job: j, schedule: pacing.Schedule{Rate: j.Rate, Connections: j.Connections}, end: j.Warmup + j.Duration,
		recorder: pacing.NewRecorder(j.Warmup, j.Warmup+j.Duration),
	}
	for i := range j.Connections {
		g.clients = append(g.clients, connect(i))
	}
	if err := g.each(ctx, func(ctx context.Context, i int) error { return g.clients[i].prepare(ctx) }); err != nil {
		return workload.LoadReport{}, err
	}
	both, err := dialMachines(ctx, j)
	if err == nil {
		err = wait()
	}
	if err != nil {
		return workload.LoadReport{}, err
	}
	machinesBefore, err := both.read()
	if err != nil {
		return workload.LoadReport{}, err
	}
	before, err := used()
	if err != nil {
		return workload.LoadReport{}, err
	}
	g.start = time.Now()
	planned := 0
	if j.Rate == 0 {
		err = g.each(ctx, g.closedLoop)
	} else {
		err = g.openLoop(ctx)
		planned = g.schedule.Before(g.end) - g.schedule.Before(j.Warmup)
	}
	elapsed := time.Since(g.start)
	after, errUsed := used()
	machinesAfter, errRead := both.read()
	report := g.recorder.Report(planned)
	report.Before, report.After = machinesBefore, machinesAfter
	report.CPU, report.Elapsed, report.Processors = (after - before).Seconds(), elapsed.Seconds(), runtime.NumCPU()
	return report, errors.Join(err, errUsed, errRead)
}

// used is the CPU time of this process.
func used() (time.Duration, error) {
	var now unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &now); err != nil {
		return 0, fmt.Errorf("read the CPU time of the generator: %w", err)
	}
	return time.Duration(now.Utime.Nano() + now.Stime.Nano()), nil
}

// each calls f for all connections at the same time.
func (g *generator) each(ctx context.Context, f func(ctx context.Context, i int) error) error {
	all, ctx := errgroup.WithContext(ctx)
	for i := range g.clients {
		all.Go(func() error { return f(ctx, i) })
	}
	return all.Wait()
}

// closedLoop sends requests on a connection one after the other. Each is due when the answer
// to the last one has come.
func (g *generator) closedLoop(ctx context.Context, i int) error {
	for n := 0; ctx.Err() == nil; n++ {
		due := time.Since(g.start)
		if due >= g.end {
			return nil
		}
		if err := g.send(i, n, due); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// send sends one request on a connection and records it.
func (g *generator) send(i, n int, due time.Duration) error {
	sent := time.Since(g.start)
	if g.job.Patience > 0 {
		return g.sendWithin(i, due, sent)
	}
	kind, err := g.clients[i].send(n)
	if err != nil {
		return err
	}
	done := time.Since(g.start)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.recorder.Add(pacing.Request{Kind: kind, Due: due, Sent: sent, Done: done})
	return nil
}

// sendWithin sends one request on a connection and records its answer, or why it has none. A
// request that is due for longer than the patience is not sent.
func (g *generator) sendWithin(i int, due, sent time.Duration) error {
	q := pacing.Request{Kind: httpGet, Due: due, Sent: sent}
	cause := workload.TimedOut
	if left := due + g.job.Patience - sent; left > 0 {
		q.Bytes, cause = g.clients[i].(patient).sendWithin(left)
	}
	q.Done = time.Since(g.start)
	g.mu.Lock()
	defer g.mu.Unlock()
	if cause != "" {
		g.recorder.Fail(q, cause)
	} else {
		g.recorder.Add(q)
	}
	return nil
}

// openLoop sends requests when they are due, or as soon after that as their connection has its
// last answer. Requests that are not sent by the end of the load are left out.
func (g *generator) openLoop(ctx context.Context) error {
	total := g.schedule.Before(g.end)
	due := make([]chan int, len(g.clients))
	for i := range due {
		due[i] = make(chan int, total/len(due)+1) // so that handing out never waits
	}
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { g.handOut(ctx, total, due); return nil })
	for i := range g.clients {
		all.Go(func() error { return g.follow(ctx, i, due[i]) })
	}
	return all.Wait()
}

// follow sends the requests of a connection that have come due.
func (g *generator) follow(ctx context.Context, i int, due <-chan int) error {
	n := 0
	for request := range due {
		if time.Since(g.start) >= g.end || ctx.Err() != nil {
			return ctx.Err()
		}
		if err := g.send(i, n, g.schedule.At(request)); err != nil {
			return err
		}
		n++
	}
	return ctx.Err()
}

// handOut gives each request to its connection when it is due. It has a thread of its own,
// which sleeps in the kernel: Go's timers are late by up to a millisecond.
func (g *generator) handOut(ctx context.Context, total int, due []chan int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) }() // as the thread had it: it may be the first one
	for request := range total {
		at := g.schedule.At(request)
		for left := at - time.Since(g.start); left > 0 && ctx.Err() == nil; left = at - time.Since(g.start) {
			pause := unix.NsecToTimespec(int64(left))
			_ = unix.Nanosleep(&pause, nil) // a signal interrupts it
		}
		late := time.Since(g.start) - at
		due[g.schedule.Of(request)] <- request
		g.mu.Lock()
		g.recorder.Late(late)
		g.mu.Unlock()
	}
	for _, c := range due {
		close(c)
	}
}

// httpClient is one connection to a web server, which stays open.
type httpClient struct {
	conn     *fasthttp.HostClient
	request  fasthttp.Request
	response fasthttp.Response
	want     []byte
}

func httpClients(j Job) connector {
	want := numbers(j.Size)
	return func(int) client {
		c := &httpClient{want: want, conn: &fasthttp.HostClient{
			Addr: j.Target, MaxConns: 1, MaxIdleConnDuration: time.Hour, ReadTimeout: answerTimeout, WriteTimeout: answerTimeout,
			MaxIdemponentCallAttempts: 1, // a request that fails is not hidden by a second one
		}}
		c.request.SetRequestURI("http://" + j.Target + workload.NginxFile)
		return c
	}
}

func (c *httpClient) prepare(context.Context) error {
	_, err := c.send(0)
	return err
}

func (c *httpClient) send(int) (string, error) {
	if err := c.conn.Do(&c.request, &c.response); err != nil {
		return "", fmt.Errorf("GET %s: %w", c.request.URI(), err)
	}
	if code := c.response.StatusCode(); code != fasthttp.StatusOK {
		return "", fmt.Errorf("GET %s: the server answers %d", c.request.URI(), code)
	}
	if body := c.response.Body(); !bytes.Equal(body, c.want) {
		return "", fmt.Errorf("GET %s: the server answers %d bytes, which are not the %d of the file", c.request.URI(), len(body), len(c.want))
	}
	return httpGet, nil
}

const httpGet = "request"

// numbers returns the decimal numbers from 1, each on a line, cut to size bytes.
func numbers(size int) []byte {
	var all []byte
	for n := int64(1); len(all) < size; n++ {
		all = append(strconv.AppendInt(all, n, 10), '\n')
	}
	return all[:size]
}
