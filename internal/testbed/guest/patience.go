package guest

import (
	"fmt"
	"os"
	"time"

	"github.com/prometheus/procfs"
)

// limits say how long a guest may take to become ready.
type limits struct {
	notice time.Duration // until the wait is reported for the first time; each further one takes twice as long
	silent time.Duration // without output, while QEMU has processor time or does not want any
	all    time.Duration // in all, also where other programs take the processor time
}

// An emulated guest boots in 5 to 60 s, by the speed of this machine. One with KVM needs a tenth
// of that.
var (
	emulatedLimits = limits{notice: time.Minute, silent: 4 * time.Minute, all: 20 * time.Minute}
	kvmLimits      = limits{notice: 20 * time.Second, silent: time.Minute, all: 5 * time.Minute}
)

func (c Config) limits() limits {
	switch {
	case c.patience != limits{}:
		return c.patience
	case c.emulated():
		return emulatedLimits
	}
	return kvmLimits
}

// Patience returns how long a wait for the guest takes until it is first reported, and until it is given up.
func (c Config) Patience() (notice, limit time.Duration) { return c.limits().notice, c.limits().all }

// A QEMU that takes less than starved of a processor, and more than idle, waits for other programs.
// A guest that hangs takes a whole one, or none.
const (
	starved = 0.25
	idle    = 0.02
)

// sight is what can be seen of a guest from outside at one time.
type sight struct {
	at     time.Time
	output int64         // bytes on its console
	cpu    time.Duration // processor time of QEMU; negative: not known
}

// bootWait decides when a wait for a guest is reported, and when it ends.
type bootWait struct {
	limits
	started time.Time
	next    time.Duration // after the start: when the next report is due
	change  sight         // when the console had new output for the last time
}

func newBootWait(l limits, first sight) bootWait {
	return bootWait{limits: l, started: first.at, next: l.notice, change: first}
}

// see takes a new sight. due says that the wait has to be reported. hung is why the guest
// does not become ready any more, empty while it may.
func (w *bootWait) see(s sight) (due bool, hung string) {
	if s.output != w.change.output {
		w.change = s
	}
	waited := s.at.Sub(w.started)
	if waited >= w.next {
		due = true
		w.next = max(2*w.next, waited)
	}
	silent := s.at.Sub(w.change.at)
	switch share := w.share(s); {
	case waited >= w.all:
		hung = fmt.Sprintf("not ready after %v", w.all)
	case silent >= w.silent && (share < idle || share > starved):
		hung = fmt.Sprintf("no output for %v", w.silent)
	}
	return due, hung
}

// share returns the processors that QEMU has taken since the last output; 1 if that is not known.
func (w *bootWait) share(s sight) float64 {
	if s.cpu < 0 || w.change.cpu < 0 || !s.at.After(w.change.at) {
		return 1
	}
	return float64(s.cpu-w.change.cpu) / float64(s.at.Sub(w.change.at))
}

func (g *Guest) sight() sight {
	s := sight{at: time.Now(), cpu: -1}
	if info, err := os.Stat(g.path(consoleFile)); err == nil {
		s.output = info.Size()
	}
	if cpu, err := processorTime(g.PID); err == nil {
		s.cpu = cpu
	}
	return s
}

// processorTime returns the time of a process in user and kernel mode. Linux counts 100 ticks per second
// for user space.
func processorTime(pid int) (time.Duration, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	stat, err := process.Stat()
	return time.Duration(stat.UTime+stat.STime) * time.Second / 100, err
}
