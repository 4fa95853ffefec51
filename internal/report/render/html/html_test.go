package html

import (
	"fmt"
	"strings"
	"testing"

	"unnest.io/unnest/internal/report/document"
)

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

// Each slot has a colour in both schemes and in the table, and a mark. The darker of two similar colours has another one.
func TestSlotsDiffer(t *testing.T) {
	_, list, _ := strings.Cut(pageScript, "const marks = [")
	list, _, _ = strings.Cut(list, "]")
	marks := strings.Split(list, ", ")
	if len(marks) != document.Slots {
		t.Fatalf("%d marks, want %d", len(marks), document.Slots)
	}
	colours := map[string]bool{}
	for slot := range document.Slots {
		if n := strings.Count(pageStyle, fmt.Sprintf("--s%d: #", slot)); n != 2 || !strings.Contains(pageStyle, fmt.Sprintf(".s%d { --mark: var(--s%[1]d); }", slot)) {
			t.Errorf("slot %d has %d colours, or no class", slot, n)
		}
		_, colour, _ := strings.Cut(pageStyle, fmt.Sprintf("--s%d: ", slot))
		if colours[colour[:7]] || marks[slot] == marks[(slot+8)%document.Slots] {
			t.Errorf("slot %d: colour %s and mark %s are not its own", slot, colour[:7], marks[slot])
		}
		colours[colour[:7]] = true
	}
}

// No name is cut, on a phone neither: it gets more lines, or the legend scrolls.
func TestNoNameIsCut(t *testing.T) {
	if strings.Contains(pageScript, "truncate") || !strings.Contains(pageScript, `type: "scroll"`) || !strings.Contains(pageScript, "nameLines(chart)") {
		t.Error("the script cuts names of an axis, or of the legend")
	}
}
