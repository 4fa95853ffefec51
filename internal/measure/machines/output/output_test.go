package output

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

// The text is found in any division into writes, and after any amount of other input.
func TestWatch(t *testing.T) {
	const text = "Server listening on"
	for _, noise := range []int{0, 1, watchedBytes - 5, watchedBytes, 3 * watchedBytes} {
		whole := strings.Repeat("#", noise) + text
		for _, cut := range []int{0, 1, len(text) / 2, len(text) - 1} {
			for _, piece := range []int{1, 7, watchedBytes + 1} {
				t.Run(fmt.Sprintf("%d noise, cut %d, pieces of %d", noise, cut, piece), func(t *testing.T) {
					w := &Watch{}
					found := w.Await("no such text", text)
					early, late := whole[:noise+cut], whole[noise+cut:]
					writeAll(t, w, early, piece)
					if len(found) > 0 {
						t.Fatal("found before it was written")
					}
					writeAll(t, w, late+" port\n", piece)
					select {
					case said := <-found:
						if !strings.HasSuffix(said, text) || len(said) > watchedBytes {
							t.Errorf("found at the end of %q", said)
						}
					default:
						t.Error("not found")
					}
					writeAll(t, w, text, piece) // a second time: nobody waits
				})
			}
		}
	}
}

// The input up to a found text is dropped, the rest is searched again. The first of
// several texts is found.
func TestWatchAgain(t *testing.T) {
	w := &Watch{}
	writeAll(t, w, "ready of the old\n", 5)
	gone := w.Await("gone\n")
	writeAll(t, w, "gone\nready", 3)
	if got := <-gone; got != "ready of the old\ngone\n" {
		t.Errorf("got %q", got)
	}
	if got := <-w.Await("ready", "ended"); got != "ready" {
		t.Errorf("got %q", got)
	}
	ended := w.Await("ready", "ended")
	if len(ended) > 0 {
		t.Error("found what was found before")
	}
	writeAll(t, w, ": no, it has ended, ready or not", 1000)
	if got := <-ended; got != ": no, it has ended" {
		t.Errorf("got %q", got)
	}
}

func TestWatchQuotesTheEnd(t *testing.T) {
	w := &Watch{}
	w.Await("ready")
	writeAll(t, w, strings.Repeat("#", 2*watchedBytes)+"\nlast words\n", 1000)
	if got := w.String(); len(got) > watchedBytes || !strings.HasSuffix(got, "\nlast words") {
		t.Errorf("got %d bytes that end with %q", len(got), got[len(got)-20:])
	}
}

func writeAll(t *testing.T, w io.Writer, text string, piece int) {
	t.Helper()
	for len(text) > 0 {
		n := min(piece, len(text))
		if written, err := io.WriteString(w, text[:n]); written != n || err != nil {
			t.Fatalf("wrote %d of %d: %v", written, n, err)
		}
		text = text[n:]
	}
}
