package agent

import (
	"bytes"
	"context"
	"io"
	"testing"
	"time"
)

// Whatever an agent in a hostile fraction answers, each request ends.
func FuzzClient(f *testing.F) {
	for _, seed := range []string{
		`{"id":1,"answer":{}}{"id":2,"error":{"code":"refused","text":"x"}}`,
		`{"id":2,"answer":7}{"id":1,"answer":[]}`, `{"id":1}{"id":1}`, `[]`, `{"id":-1,"answer":null}`, "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		in, out := io.Pipe()
		c := NewClient(in, io.Discard, time.Second)
		go func() {
			_, _ = io.Copy(out, bytes.NewReader(said))
			_ = out.Close()
		}()
		_, _ = Do(ctx, c, About{})
		_, _ = Do(ctx, c, Report{})
		_, _ = Do(ctx, c, Stop{Handle: 1})
		if ctx.Err() != nil {
			t.Error("a request still waits after the end of the agent")
		}
		_ = out.Close()
		<-c.ended
	})
}
