package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"reflect"
	"strconv"
	"sync"
)

// serve starts a server of the requested kind.
func (j *job) serve(o Serve) (Served, error) {
	if o.Process {
		return j.serveInProcess(o)
	}
	t, address, err := j.start(o)
	if err != nil {
		return Served{}, err
	}
	return Served{Handle: j.keep(t), Address: address}, nil
}

// start returns a running server and the address where it listens.
func (j *job) start(o Serve) (resource, string, error) {
	if !isStream(o.Network) {
		return j.startUDP(o)
	}
	l, err := j.listenTCP(o)
	if err != nil {
		return nil, "", err
	}
	var t resource
	switch o.Kind {
	case HTTP:
		t = serveHTTP(l, pages())
	case Proxy:
		t = serveHTTP(l, proxyTo(o.Upstream))
	case GRPC:
		t = serveGRPC(l)
	default:
		t, err = startTCP(l, o)
	}
	if err != nil {
		_ = l.Close()
		return nil, "", err
	}
	return t, l.Addr().String(), nil
}

// service is a server of a library.
type service struct {
	close func() error
	ended chan error
}

func startService(serve, close func() error) *service {
	s := &service{close, make(chan error, 1)}
	go func() { s.ended <- serve() }()
	return s
}

func (s *service) stop() error {
	err := s.close()
	if ended := <-s.ended; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

// recorder is a server that records what it receives.
type recorder interface {
	resource
	seen() Seen
}

func (j *job) report(o Report) (Seen, error) {
	w, err := find[recorder](j.agent, o.Handle)
	if err != nil {
		return Seen{}, err
	}
	return w.seen(), nil
}

func (j *job) resume(o Resume) (Nothing, error) {
	s, err := find[*tcpServer](j.agent, o.Handle)
	if err != nil {
		return Nothing{}, err
	}
	if err := setBacklog(s.listener, usualBacklog); err != nil {
		return Nothing{}, fmt.Errorf("set the backlog: %w", err)
	}
	s.resume()
	return Nothing{}, nil
}

// bound are sockets that only occupy their ports.
type bound = sockets[io.Closer]

func (j *job) bind(o Bind) (Bound, error) {
	var sockets bound
	var answer Bound
	for range o.Times {
		s, address, err := j.bindOne(Serve{Network: o.Network, Address: o.Address})
		if err != nil {
			_ = sockets.stop()
			return Bound{}, fmt.Errorf("socket %d of %d: %w", len(sockets)+1, o.Times, err)
		}
		sockets = append(sockets, s)
		answer.Addresses = append(answer.Addresses, address.String())
	}
	answer.Handle = j.keep(sockets)
	return answer, nil
}

func (j *job) bindOne(o Serve) (io.Closer, net.Addr, error) {
	if isStream(o.Network) {
		l, err := j.listenTCP(o)
		if err != nil {
			return nil, nil, err
		}
		return l, l.Addr(), nil
	}
	c, err := j.listenUDP(o)
	if err != nil {
		return nil, nil, err
	}
	return c, c.LocalAddr(), nil
}

// open are the connections that a server closes when it stops.
type open struct {
	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool
}

// add stores a connection. If the server has stopped, it closes the connection and returns
// false.
func (o *open) add(c net.Conn) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		_ = c.Close()
		return false
	}
	if o.conns == nil {
		o.conns = map[net.Conn]bool{}
	}
	o.conns[c] = true
	return true
}

func (o *open) drop(c net.Conn) {
	_ = c.Close()
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.conns, c)
}

func (o *open) closeAll() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	for c := range o.conns {
		_ = c.Close()
	}
}

// handler executes a request.
type handler func(j *job, with json.RawMessage) (any, error)

// handlers has a handler for each request, by the name on the wire; names has that name, by
// the type of the request. init fills them, because handlers refer to them.
var (
	handlers = map[string]handler{}
	names    = map[reflect.Type]string{}
)

func init() {
	on("about", (*job).about)
	on("serve", (*job).serve)
	on("stop", (*job).stop)
	on("resume", (*job).resume)
	on("report", (*job).report)
	on("connect", (*job).connect)
	on("datagrams", (*job).datagrams)
	on("pour", (*job).pour)
	on("segments", (*job).segments)
	on("hold", (*job).hold)
	on("exchange", (*job).exchange)
	on("await-end", (*job).awaitEnd)
	on("abort", (*job).abort)
	on("transfer", (*job).transfer)
	on("bind", (*job).bind)
	on("ping", (*job).ping)
	on("traffic", (*job).traffic)
	on("look", (*job).look)
	on("run", (*job).run)
	on("fetch", (*job).fetch)
	on("call-grpc", (*job).callGRPC)
}

// on registers the handler of a request.
func on[R Request[A], A any](name string, do func(*job, R) (A, error)) {
	names[reflect.TypeFor[R]()] = name
	handlers[name] = func(j *job, with json.RawMessage) (any, error) {
		var r R
		d := json.NewDecoder(bytes.NewReader(with))
		d.DisallowUnknownFields()
		if err := d.Decode(&r); err != nil {
			return nil, fmt.Errorf("read request %s: %w: the agent is of another version", name, err)
		}
		return do(j, r)
	}
}

func serveHTTP(l net.Listener, h http.Handler) *service {
	s := &http.Server{Handler: h}
	return startService(func() error { return s.Serve(l) }, s.Close)
}

// pages serves a page of the requested size.
func pages() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /bytes", func(w http.ResponseWriter, r *http.Request) {
		size, err := strconv.ParseInt(r.URL.Query().Get("size"), 10, 64)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_, _ = io.Copy(w, stream(uint64(size), size)) // the client notices missing bytes
	})
	return mux
}

// proxyTo returns a reverse proxy, as a sidecar is one.
func proxyTo(address string) http.Handler {
	return httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: address})
}

// fetch uses a new connection.
func (j *job) fetch(o Fetch) (Page, error) {
	ctx, cancel := context.WithTimeout(j.ctx, j.limit())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, o.URL, nil)
	if err != nil {
		return Page{}, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(r)
	if err != nil {
		return Page{}, err
	}
	defer response.Body.Close()
	s := newSum()
	if _, err := io.Copy(s, response.Body); err != nil {
		return Page{}, fmt.Errorf("read %s: %w", o.URL, err)
	}
	return Page{Status: response.StatusCode, Size: s.bytes, Sum: s.Sum64()}, nil
}
