package load

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/bradfitz/gomemcache/memcache"

	"unnest.io/unnest/internal/measure/workload"
)

// memcachedKeys is the number of keys, which all exist before the load begins. More of them
// change nothing in memcached, and storing them takes seconds in an emulated guest.
const memcachedKeys = 200

// setEvery is the number of requests of which the first is a SET: one for ten GETs.
const setEvery = 11

// item is a key with its value, which never changes, so that every GET can be checked.
type item struct {
	key   string
	value []byte
}

// items returns all items, with values of size bytes: the number of the key, repeated.
func items(size int) (all []item) {
	for n := range memcachedKeys {
		word := fmt.Sprintf("%d ", n)
		all = append(all, item{fmt.Sprintf("unnest-%d", n), []byte(strings.Repeat(word, size/len(word)+1)[:size])})
	}
	return all
}

type memcachedClient struct {
	items []item
	i, of int // connections
	conn  *memcache.Client
}

func memcachedClients(j Job) connector {
	all := items(j.Size)
	return func(i int) client {
		c := memcache.New(j.Target)
		c.Timeout, c.MaxIdleConns = answerTimeout, 1
		return &memcachedClient{all, i, j.Connections, c}
	}
}

// prepare sets this connection's share of the keys, and at least one.
func (c *memcachedClient) prepare(ctx context.Context) error {
	for n := c.i; n == c.i || n < len(c.items); n += c.of {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := c.set(c.items[n%len(c.items)]); err != nil {
			return err
		}
	}
	return nil
}

// send sends a SET as every eleventh request, on each connection at another time.
func (c *memcachedClient) send(n int) (string, error) {
	one := c.items[(c.i*len(c.items)/c.of+n)%len(c.items)]
	if (c.i+n)%setEvery == 0 {
		return workload.Set, c.set(one)
	}
	got, err := c.conn.Get(one.key)
	if err != nil {
		return "", fmt.Errorf("GET %s: %w", one.key, err)
	}
	if !bytes.Equal(got.Value, one.value) {
		return "", fmt.Errorf("GET %s: the server answers %q, want %q", one.key, got.Value, one.value)
	}
	return workload.Get, nil
}

func (c *memcachedClient) set(one item) error {
	if err := c.conn.Set(&memcache.Item{Key: one.key, Value: one.value}); err != nil {
		return fmt.Errorf("SET %s: %w", one.key, err)
	}
	return nil
}
