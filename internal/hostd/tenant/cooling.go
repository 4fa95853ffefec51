package tenant

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"unnest.io/unnest/internal/hostd/ipam"
	"unnest.io/unnest/internal/hostd/statefile"
)

const (
	// coolingDelay is how long a change of the cooling addresses waits for others
	// before all are written. A daemon that is killed loses as much.
	coolingDelay = time.Second
	coolingRetry = 10 * time.Second // after a write that has failed
)

// coolingFile keeps a tenant's cooling addresses across restarts. It is written without
// the tenant's lock, at most once in coolingDelay.
type coolingFile struct {
	path string
	log  *slog.Logger
	try  func(what string, f func()) // contains a panic
	read func() []ipam.Cooling       // the addresses now

	writing sync.Mutex // held during a write
	mu      sync.Mutex
	due     *time.Timer // nil: nothing is to be written
}

// load returns the addresses that were cooling down when the earlier daemon ended. It
// moves a damaged file aside: cool-downs are a precaution, so the daemon starts without
// them.
func (f *coolingFile) load() (cooling []ipam.Cooling) {
	content, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(content, &cooling)
	}
	if err == nil {
		return cooling
	}
	aside := f.path + ".damaged"
	_ = os.RemoveAll(aside) // of an earlier time
	f.log.Warn("read cooling addresses: addresses that were released before are free at once",
		"file", f.path, "error", err, "moved to", aside, "moved", os.Rename(f.path, aside) == nil)
	return nil
}

// changed has the file written within coolingDelay.
func (f *coolingFile) changed() { f.writeAfter(coolingDelay) }

func (f *coolingFile) writeAfter(delay time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.due == nil {
		f.due = time.AfterFunc(delay, f.flush)
	}
}

// takeDue reports whether a write was due. None is due afterwards.
func (f *coolingFile) takeDue() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.due == nil {
		return false
	}
	f.due.Stop()
	f.due = nil
	return true
}

// flush writes the file now, if anything has changed. It is also called by a timer, where
// a panic would end the service of all tenants.
func (f *coolingFile) flush() { f.try("write cooling addresses", f.write) }

func (f *coolingFile) write() {
	f.writing.Lock()
	defer f.writing.Unlock()
	if !f.takeDue() {
		return
	}
	if err := statefile.Write(f.path, f.read()); err != nil {
		f.log.Warn("write cooling addresses", "error", err)
		f.writeAfter(coolingRetry)
	}
}
