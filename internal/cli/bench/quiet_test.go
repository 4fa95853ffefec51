package bench

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/measure/noise"
)

func TestAwaitQuiet(t *testing.T) {
	const waiting = "other processes used 0.60 processors, most of it spin (process 7): waiting up to 30s for a quiet machine; --noisy begins at once\n"
	const began = "warning: other processes used 0.60 processors, most of it spin (process 7): this run may be too noisy to conclude\n"
	busy := noise.Reading{Elapsed: lookTime, Others: 0.6, Busiest: []noise.Share{{PID: 7, Name: "spin", Share: 0.55}}}
	for _, tc := range []struct {
		name  string
		busy  int // looks
		looks int
		said  string
	}{
		{"quiet", 0, 1, ""},
		{"busy for a while", 5, 6, waiting},
		{"busy", 1000, 30, waiting + began},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var said bytes.Buffer
				looks := 0
				err := awaitQuiet(t.Context(), terminal.Streams{Err: &said}, func(context.Context) (noise.Reading, error) {
					time.Sleep(lookTime + time.Millisecond)
					if looks++; looks <= tc.busy {
						return busy, nil
					}
					return noise.Reading{Elapsed: lookTime, Others: 0.02}, nil
				})
				if err != nil || looks != tc.looks || said.String() != tc.said {
					t.Errorf("%v after %d looks, want %d:\n%swant:\n%s", err, looks, tc.looks, said.String(), tc.said)
				}
			})
		})
	}
}

func TestAwaitQuietEnds(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("interrupted")
	cancel(cause)
	if err := awaitQuiet(ctx, terminal.Streams{}, look); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}

func TestLook(t *testing.T) {
	if r, err := look(t.Context()); err != nil || r.Elapsed < lookTime {
		t.Errorf("got %+v, %v", r, err)
	}
}
