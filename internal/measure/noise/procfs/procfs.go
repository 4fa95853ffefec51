// Package procfs takes the snapshots of package noise of this machine.
package procfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/measure/cputime"
	"unnest.io/unnest/internal/measure/noise"
)

var start = time.Now() // the zero of noise.Snapshot.At

// initialNamespace is the PID namespace in which every process of the machine is visible. The
// kernel gives it this number on every machine (PROC_PID_INIT_INO).
const initialNamespace = "pid:[4026531836]"

// Read takes a snapshot. It costs about 20 µs per process of the machine.
func Read() (noise.Snapshot, error) {
	s := noise.Snapshot{At: time.Since(start)}
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return s, fmt.Errorf("look at the machine: %w", err)
	}
	if s.Host, err = cputime.Parse(stat); err != nil {
		return s, fmt.Errorf("look at the machine: %w", err)
	}
	if s.Switches, err = noise.ParseSwitches(stat); err != nil {
		return s, fmt.Errorf("look at the machine: %w", err)
	}
	s.Stalled = stalled()
	s.MHz = frequency()
	namespace, err := os.Readlink("/proc/self/ns/pid")
	s.Blind = err == nil && namespace != initialNamespace
	s.Processes, err = processes()
	return s, err
}

// stalled returns the time in which a task waited for a processor; 0 on kernels that do not tell it.
func stalled() time.Duration {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return 0
	}
	pressure, err := proc.PSIStatsForResource("cpu")
	if err != nil || pressure.Some == nil {
		return 0
	}
	return time.Duration(pressure.Some.Total) * time.Microsecond
}

func processes() (all []noise.Process, err error) {
	found, err := procfs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("look at the processes: %w", err)
	}
	for _, p := range found {
		stat, err := p.Stat()
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrPermission) {
			continue // it has ended, or /proc hides it
		}
		if err != nil {
			return nil, fmt.Errorf("look at process %d: %w", p.PID, err)
		}
		all = append(all, noise.Process{
			PID: stat.PID, Parent: stat.PPID, Started: stat.Starttime, Ended: stat.State == "Z", Name: stat.Comm,
			Spent: time.Duration(stat.UTime+stat.STime) * cputime.Tick, Reaped: time.Duration(stat.CUTime+stat.CSTime) * cputime.Tick,
		})
	}
	return all, nil
}

// frequency returns the mean frequency of the processors in MHz, 0 if the kernel does not
// tell it.
func frequency() float64 {
	files, _ := filepath.Glob("/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq")
	sum := 0.0
	for _, f := range files {
		text, _ := os.ReadFile(f)
		kHz, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
		if err != nil {
			return 0
		}
		sum += kHz / 1000
	}
	if len(files) == 0 {
		return 0
	}
	return sum / float64(len(files))
}
