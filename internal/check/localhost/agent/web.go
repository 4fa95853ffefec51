package agent

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
)

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
