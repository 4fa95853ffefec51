package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
)

// web is an HTTP server.
type web struct {
	server *http.Server
	ended  chan error
}

func serveHTTP(l net.Listener, h http.Handler) *web {
	w := &web{server: &http.Server{Handler: h}, ended: make(chan error, 1)}
	go func() { w.ended <- w.server.Serve(l) }()
	return w
}

func (w *web) stop() error {
	err := w.server.Close()
	if ended := <-w.ended; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

// pages has one page, which is as large as asked for.
func pages() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /bytes", func(w http.ResponseWriter, r *http.Request) {
		size, err := strconv.ParseInt(r.URL.Query().Get("size"), 10, 64)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_, _ = io.Copy(w, stream(uint64(size), size)) // the client sees what is missing
	})
	return mux
}

// proxyTo is what a sidecar does.
func proxyTo(address string) http.Handler {
	return httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: address})
}

// fetch makes a connection of its own.
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
