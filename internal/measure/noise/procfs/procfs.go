// Package procfs takes the snapshots of package noise of this machine.
package procfs

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

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
	if pressure, err := os.ReadFile("/proc/pressure/cpu"); err == nil { // not in every kernel
		s.Stalled, _ = noise.ParseStalled(pressure)
	}
	s.MHz = frequency()
	namespace, err := os.Readlink("/proc/self/ns/pid")
	s.Blind = err == nil && namespace != initialNamespace
	s.Processes, err = processes()
	return s, err
}

func processes() ([]noise.Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("look at the processes: %w", err)
	}
	var all []noise.Process
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue // it has ended
		}
		p, err := noise.ParseProcess(string(stat))
		if err != nil {
			return nil, err
		}
		all = append(all, p)
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
