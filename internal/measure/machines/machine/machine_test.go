package machine

import (
	"errors"
	"testing"

	"unnest.io/unnest/internal/measure/experiment"
)

// If any machine of a pod has ended, that is the error of the execution.
func TestMachinesExplain(t *testing.T) {
	died, symptom := errors.New("out of memory"), errors.New("connection refused")
	alive := &Machine{Died: func() error { return nil }}
	dead := &Machine{Died: func() error { return died }}
	for _, m := range []List{{alive, dead}, {dead, alive}, {dead}} {
		if err := m.Explain(symptom); !errors.Is(err, died) || !errors.Is(err, experiment.ErrFatal) {
			t.Errorf("got %v, want what the machine died of", err)
		}
		if err := m.Explain(nil); err != nil {
			t.Errorf("without an error: got %v", err)
		}
	}
	if err := (List{alive, &Machine{}}).Explain(symptom); !errors.Is(err, symptom) || errors.Is(err, experiment.ErrFatal) {
		t.Errorf("all alive: got %v", err)
	}
}
