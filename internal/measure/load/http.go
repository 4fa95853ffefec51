package load

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"unnest.io/unnest/internal/measure/workload"
)

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
