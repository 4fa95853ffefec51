package html

import "testing"

// The tone of a badge follows from its first word.
func TestTone(t *testing.T) {
	for badge, want := range map[string]string{
		"faster": "good", "better": "good", "slower": "bad", "worse in 3": "bad", "equal within 0.44 %": "same", "not known: needs 5 more": "open", "not known in all": "open",
	} {
		if got := tone(badge); got != want {
			t.Errorf("%s: tone %q, want %q", badge, got, want)
		}
	}
}
