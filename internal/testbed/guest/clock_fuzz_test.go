package guest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// An answer that is accepted is the one time that the guest's own form of it gives.
func FuzzParseClock(f *testing.F) {
	f.Add("7 1700000000.000001", 7)
	f.Add("1 -0.999999", 1)
	f.Add("2 9223372036854775807.4294967", 2)
	f.Fuzz(func(t *testing.T, text string, n int) {
		at, err := parseClock(text, n)
		if err != nil {
			return
		}
		_, fraction, _ := strings.Cut(text, ".")
		if got := fmt.Sprintf("%06d", at.Nanosecond()/1000); got != fraction {
			t.Errorf("%q: got %v", text, at)
		}
	})
}

// A manifest that was read, written and read again is the same.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"inputs":["a"],"stopped":"2026-11-23T06:00:00.5Z","ahead":-5,"files":{"memory":{"size":4096,"modified":"2026-11-23T06:00:00Z","sum":"ab"}}}`))
	f.Add([]byte(`{"files":null,"ahead":9223372036854775807}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		var m, again manifest
		if err := decodeManifest(content, &m); err != nil {
			return
		}
		_ = m.lag(time.Unix(1700000000, 0))
		written, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if err := decodeManifest(written, &again); err != nil || fmt.Sprint(again) != fmt.Sprint(m) {
			t.Errorf("got %v, %v, want %v", again, err, m)
		}
	})
}
