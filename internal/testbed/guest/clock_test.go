package guest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// guestClock plays the script clock in a guest whose clock is ahead of the host's. Reading a line
// takes the time hear(), and its answers arrive after say(). A step is too short by set().
type guestClock struct {
	ahead          time.Duration
	hear, say, set func() time.Duration
	steps          int
	gone           bool // on its way
}

func (g *guestClock) run(console io.ReadWriteCloser) {
	defer console.Close()
	for lines := bufio.NewScanner(console); !g.gone && lines.Scan(); {
		command, value, _ := strings.Cut(lines.Text(), " ")
		switch command {
		case "clock":
			time.Sleep(g.hear())
			now := time.Now().Add(g.ahead)
			time.Sleep(g.say())
			_, _ = fmt.Fprintf(console, "unnest-boot clock %s %d.%06d\n", value, now.Unix(), now.Nanosecond()/1000)
		case "step":
			step, err := time.ParseDuration(strings.TrimPrefix(value, "+") + "s")
			if err != nil {
				panic(err)
			}
			// date reads the clock, and sets it later to what it has read and the step.
			late := g.set()
			time.Sleep(late)
			g.ahead += step - late
			g.steps++
		case "go":
			g.gone = true
		}
	}
}

func constant(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

// A guest that is restored goes on with a right clock, however long it takes for its answers, and
// although it may set its clock late. One whose clock cannot be known does not go on.
func TestSetClock(t *testing.T) {
	late := func(delays ...time.Duration) func() time.Duration {
		return func() (d time.Duration) {
			if len(delays) > 0 {
				d, delays = delays[0], delays[1:]
			}
			return d
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	busy := func(most time.Duration) func() time.Duration {
		return func() time.Duration { return time.Duration(random.Int64N(int64(most)) * random.Int64N(2)) }
	}
	const lag = 3 * time.Hour
	for _, tt := range []struct {
		name  string
		guest guestClock
		steps int // 0: any number
		want  string
	}{
		{"at once", guestClock{ahead: -lag, hear: constant(time.Millisecond), say: constant(time.Millisecond), set: constant(0)}, 1, ""},
		{"first answer is slow", guestClock{ahead: -lag, hear: late(time.Second), say: constant(time.Millisecond), set: constant(0)}, 1, ""},
		{"QEMU's events are late", guestClock{ahead: -lag - 305*time.Millisecond, hear: constant(time.Millisecond), say: constant(0), set: constant(0)}, 2, ""},
		{"date sets it late", guestClock{ahead: -lag, hear: constant(0), say: constant(0), set: late(305*time.Millisecond, 80*time.Millisecond)}, 3, ""},
		{"every way is slow, not always", guestClock{ahead: -lag + 200*time.Millisecond, hear: busy(time.Second), say: busy(time.Second), set: busy(300 * time.Millisecond)}, 0, ""},
		{"never known", guestClock{ahead: -lag, hear: constant(60 * time.Millisecond), say: constant(60 * time.Millisecond), set: constant(0)}, 1,
			"set its clock: after 100 attempts it may be wrong by -60ms to 60ms, want at most 50ms; restore it"},
		{"always set late", guestClock{ahead: -lag, hear: constant(0), say: constant(0), set: constant(time.Second)}, clockTries / 2, "it may be wrong by -1s to -1s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				host, inside := net.Pipe()
				ended := make(chan struct{})
				go func() { tt.guest.run(inside); close(ended) }()
				err := (&control{console: host}).setClock(t.Context(), lag)
				_ = host.Close()
				<-ended
				if tt.guest.gone != (tt.want == "") || tt.want == "" && (err != nil || tt.guest.ahead.Abs() > clockTolerance) {
					t.Errorf("the clock is %v ahead, the guest went on: %v (%v)", tt.guest.ahead, tt.guest.gone, err)
				}
				if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
					t.Errorf("got %v, want %q", err, tt.want)
				}
				if tt.steps != 0 && tt.guest.steps != tt.steps {
					t.Errorf("%d steps, want %d", tt.guest.steps, tt.steps)
				}
			})
		})
	}
}

// A guest that fails, panics or ends while its clock is set is an error, and one that is silent
// is waited for until ctx ends.
func TestSetClockFails(t *testing.T) {
	for prints, want := range map[string]string{
		"unnest-boot failed: no seed\n":           "no seed",
		"Kernel panic - not syncing: IO\n":        "Kernel panic - not syncing: IO",
		"x\nunnest-boot clock 2 1795362946.063\n": "to question 1 for its time",
		"Linux\n": "EOF",
		"":        context.DeadlineExceeded.Error(),
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), restoreLimit)
			defer cancel()
			host, inside := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, inside) }()
			if prints != "" {
				go func() { _, _ = io.WriteString(inside, prints); _ = inside.Close() }()
			}
			err := (&control{console: host}).setClock(ctx, 0)
			_, _ = host.Close(), inside.Close()
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: got %v, want %q", prints, err, want)
			}
		})
	}
}

// The bounds always contain the truth, and each answer makes them narrower, unless a clock was set.
func TestClockBounds(t *testing.T) {
	now := time.Unix(1795362946, 0)
	at := func(ms int) time.Time { return now.Add(time.Duration(ms) * time.Millisecond) }
	var b clockBounds
	for i, tt := range []struct {
		asked, guest, answered, low, high int // the guest is 40 ms ahead, and later 1 s
		right, wrong                      bool
	}{
		{0, 940, 1000, -60, 940, false, false},
		{1000, 1100, 1500, -60, 100, false, false},
		{2000, 2240, 2205, 35, 100, false, true},
		{3000, 3049, 3900, 35, 49, true, false},
		{4000, 5010, 4020, 990, 1010, false, true},
	} {
		b = b.narrow(at(tt.asked), at(tt.guest), at(tt.answered))
		if b.low.Milliseconds() != int64(tt.low) || b.high.Milliseconds() != int64(tt.high) || b.right() != tt.right || b.wrong() != tt.wrong {
			t.Errorf("after answer %d: %+v (right %v, wrong %v), want %+v", i+1, b, b.right(), b.wrong(), tt)
		}
	}
}

func TestParseClock(t *testing.T) {
	if got, err := parseClock("7 1795362946.063712", 7); err != nil || !got.Equal(time.Unix(1795362946, 63712000)) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, text := range []string{"", "7", "6 1795362946.063712", "7 1795362946", "7 1795362946.06", "7 x.063712", "7 1.0637x4", "7 1795362946.-63712"} {
		if got, err := parseClock(text, 7); err == nil {
			t.Errorf("%q: got %v", text, got)
		}
	}
}
