package machine

import (
	"context"
	"errors"
	"testing"
	"time"

	"unnest.io/unnest/internal/measure/benchtest"
	"unnest.io/unnest/internal/measure/cputime"
	"unnest.io/unnest/internal/testbed/place"
)

// readMeter reads the CPU time of a machine.
func readMeter(t *testing.T, m *Meter) (cputime.Times, error) {
	t.Helper()
	line, err := m.Read(t.Context(), "")
	if err != nil {
		return cputime.Times{}, err
	}
	return cputime.Parse(line)
}

func TestMeter(t *testing.T) {
	m, err := StartMeter(t.Context(), place.Local{}, machineMeter)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Stop()
	first, err := readMeter(t, m)
	if err != nil || first.User == 0 || first.Idle == 0 {
		t.Fatalf("first reading: %+v, %v", first, err)
	}
	for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); { // spends CPU time
	}
	second, err := readMeter(t, m)
	if err != nil {
		t.Fatal(err)
	}
	spent, err := second.Sub(first)
	if err != nil || spent.Breakdown().Total() < 100*time.Millisecond {
		t.Errorf("spent %+v, %v; want at least the 200 ms of this test, less a tick or two", spent, err)
	}
}

// A shell that is killed or does not answer gives an error in time.
func TestMeterFails(t *testing.T) {
	m, err := StartMeter(t.Context(), place.Local{}, machineMeter)
	if err != nil {
		t.Fatal(err)
	}
	m.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := m.Read(ctx, ""); !errors.Is(err, errMeterEnded) {
		t.Errorf("stopped: got %v, want %v", err, errMeterEnded)
	}

	m, err = StartMeter(t.Context(), mute{}, machineMeter)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Stop()
	why := errors.New("time is up")
	late, stop := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, why)
	defer stop()
	if _, err := m.Read(late, ""); !errors.Is(err, why) {
		t.Errorf("silent: got %v, want the cause", err)
	}
}

// mute is a place whose commands print nothing.
type mute struct{ place.Local }

func (mute) Start(ctx context.Context, _ place.Command) (place.Process, error) {
	return benchtest.Process(func() error {
		<-ctx.Done()
		return ctx.Err()
	}), nil
}
