package cputime

import (
	"bytes"
	"errors"
	"fmt"
)

// Positions in /proc/PID/stat, counted from the state, which follows the name
// of the program (fields 14, 15 and 43 of proc_pid_stat(5)).
const (
	processUser   = 11
	processSystem = 12
	processGuest  = 40
)

// ParseProcess reads User, System and Guest of a process from its
// /proc/PID/stat: all its threads since its start, without its children. Guest
// is in User, as in /proc/stat; it stays 0 on kernels that do not print it.
// System may include interrupts that came while the process ran.
func ParseProcess(stat []byte) (Times, error) {
	// The name is in parentheses and may hold anything, these included.
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return Times{}, errors.New("/proc/PID/stat: no program name in parentheses")
	}
	fields := bytes.Fields(stat[end+1:])
	if len(fields) <= processSystem {
		return Times{}, fmt.Errorf("/proc/PID/stat: %d fields after the program name, want at least %d", len(fields), processSystem+1)
	}
	var t Times
	var err error
	if t.User, err = parseTicks(fields[processUser]); err != nil {
		return Times{}, fmt.Errorf("/proc/PID/stat: utime: %w", err)
	}
	if t.System, err = parseTicks(fields[processSystem]); err != nil {
		return Times{}, fmt.Errorf("/proc/PID/stat: stime: %w", err)
	}
	if len(fields) <= processGuest {
		return t, nil
	}
	if t.Guest, err = parseTicks(fields[processGuest]); err != nil {
		return Times{}, fmt.Errorf("/proc/PID/stat: guest_time: %w", err)
	}
	return t, nil
}
