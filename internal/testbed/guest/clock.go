package guest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The guest's clock is asked at most clockTries times. That of a guest that is frozen has to be
// known within clockError, that of a restored one has to be right within clockTolerance.
const (
	clockError     = 20 * time.Millisecond
	clockTolerance = 50 * time.Millisecond
	clockTries     = 100
)

// clockBounds are the limits between which a guest's clock is ahead of the host's. The zero value
// limits nothing.
type clockBounds struct {
	low, high time.Duration
	known     bool
}

// narrow adds what an answer tells: the guest has read its clock between question and answer.
// An answer that contradicts earlier ones replaces them: the host's clock was set since.
func (b clockBounds) narrow(asked, guest, answered time.Time) clockBounds {
	n := clockBounds{guest.Sub(answered), guest.Sub(asked), true}
	if both := (clockBounds{max(b.low, n.low), min(b.high, n.high), true}); b.known && both.low <= both.high {
		return both
	}
	return n
}

// ahead is the best estimate. The clock is within uncertain of it.
func (b clockBounds) ahead() time.Duration     { return b.low + b.uncertain() }
func (b clockBounds) uncertain() time.Duration { return (b.high - b.low) / 2 }

// right reports whether the clock is surely right.
func (b clockBounds) right() bool { return b.low >= -clockTolerance && b.high <= clockTolerance }

// wrong reports whether the clock is surely wrong, and how far is known well enough to set it.
func (b clockBounds) wrong() bool {
	return (b.low > 0 || b.high < 0) && b.uncertain() <= clockTolerance && !b.right()
}

// clockDialog asks a guest for its time, again and again.
type clockDialog struct {
	*control
	clockBounds
	tries int
	asked time.Time
}

func (d *clockDialog) ask() error {
	d.tries++
	d.asked = time.Now()
	return d.say("clock %d", d.tries)
}

// set moves the guest's clock and asks for the time. The guest does not do that at one point in
// time, so the clock can be wrong afterwards.
func (d *clockDialog) set(step time.Duration) error {
	d.clockBounds = clockBounds{}
	d.tries++
	d.asked = time.Now()
	return d.say("step %+.6f\nclock %d", step.Seconds(), d.tries)
}

// answered takes the answer to the last question.
func (d *clockDialog) answered(text string, now time.Time) error {
	guest, err := parseClock(text, d.tries)
	if err == nil {
		d.clockBounds = d.narrow(d.asked, guest, now)
	}
	return err
}

// parseClock parses the answer to question n: its number and the guest's time in
// seconds, with six decimals.
func parseClock(text string, n int) (time.Time, error) {
	number, clock, _ := strings.Cut(text, " ")
	seconds, fraction, _ := strings.Cut(clock, ".")
	s, err := strconv.ParseInt(seconds, 10, 64)
	us, usErr := strconv.ParseUint(fraction, 10, 32)
	if err = errors.Join(err, usErr); err != nil || number != strconv.Itoa(n) || len(fraction) != 6 {
		return time.Time{}, fmt.Errorf("the guest answers %q to question %d for its time", text, n)
	}
	return time.Unix(s, int64(us)*1000), nil
}

// awaitFrozen waits until the guest waits to be frozen, and returns how far its clock is
// ahead of the host's.
func (c *control) awaitFrozen(ctx context.Context) (time.Duration, error) {
	d := &clockDialog{control: c}
	err := c.marks(ctx, func(what, rest string, now time.Time) (bool, error) {
		switch what {
		case "frozen":
			return false, d.ask()
		case "clock":
			if err := d.answered(rest, now); err != nil {
				return true, err
			}
			if d.uncertain() <= clockError || d.tries == clockTries {
				return true, nil
			}
			return false, d.ask()
		}
		return false, nil
	})
	return d.ahead(), err
}

// setClock moves the clock of a restored guest by the time for which it stood still, as far as that
// is known, and asks and moves it until it is right. Then the guest goes on.
func (c *control) setClock(ctx context.Context, lag time.Duration) error {
	d := &clockDialog{control: c}
	if err := d.set(lag); err != nil {
		return err
	}
	return c.marks(ctx, func(what, rest string, now time.Time) (bool, error) {
		if what != "clock" {
			return false, nil
		}
		if err := d.answered(rest, now); err != nil {
			return true, err
		}
		switch {
		case d.right():
			return true, c.say("go")
		case d.tries == clockTries:
			return true, fmt.Errorf("set its clock: after %d attempts it may be wrong by %v to %v, want at most %v; restore it when this machine is less busy",
				d.tries, d.low.Round(time.Millisecond), d.high.Round(time.Millisecond), clockTolerance)
		case d.wrong():
			return false, d.set(-d.ahead())
		}
		return false, d.ask()
	})
}

// marks calls f with each mark that the guest prints, until f reports that it is done. A guest
// that fails or panics is an error.
func (c *control) marks(ctx context.Context, f func(what, rest string, now time.Time) (bool, error)) error {
	return c.lines(ctx, func(line string) (bool, error) {
		now := time.Now()
		_, text, ok := strings.Cut(line, bootMark)
		what, rest, _ := strings.Cut(text, " ")
		switch {
		case strings.Contains(line, "Kernel panic"):
			return true, errors.New(line)
		case !ok:
			return false, nil
		case what == "failed:":
			return true, errors.New(rest)
		}
		return f(what, rest, now)
	})
}
