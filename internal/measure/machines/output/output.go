// Package output watches what programs print: it finds the texts that say how far they are, and quotes their
// last lines.
package output

import (
	"bytes"
	"strings"
	"sync"
)

// Watch is a writer that searches its input for texts.
type Watch struct {
	mu    sync.Mutex
	tail  []byte // the last watchedBytes written since the last text that was found
	texts []string
	found chan string
}

// watchedBytes is how much of the input is kept to search and to quote.
const watchedBytes = 4096

// Await returns a channel that receives the input up to the end of the first of texts
// that occurs. It replaces earlier calls, and searches only behind the text that was
// found last.
func (w *Watch) Await(texts ...string) <-chan string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts, w.found = texts, make(chan string, 1)
	w.search()
	return w.found
}

func (w *Watch) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tail = append(w.tail, p...)
	w.search()
	if extra := len(w.tail) - watchedBytes; extra > 0 {
		w.tail = append(w.tail[:0], w.tail[extra:]...)
	}
	return len(p), nil
}

func (w *Watch) search() {
	end := -1
	for _, text := range w.texts {
		if i := bytes.Index(w.tail, []byte(text)); i >= 0 && (end < 0 || i+len(text) < end) {
			end = i + len(text)
		}
	}
	if end >= 0 {
		w.found <- string(w.tail[max(0, end-watchedBytes):end])
		w.tail, w.texts = w.tail[end:], nil
	}
}

func (w *Watch) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(bytes.TrimSpace(w.tail))
}

// quotedLines limits what is quoted of a server's output.
const quotedLines = 8

// LastLines joins the last lines of what a server printed.
func LastLines(printed string) string {
	lines := strings.Split(strings.TrimSpace(printed), "\n")
	return strings.Join(lines[max(0, len(lines)-quotedLines):], "; ")
}
