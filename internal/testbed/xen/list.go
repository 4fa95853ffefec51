package xen

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Entry is a domain as xl lists it.
type Entry struct {
	Name   string
	ID     int
	Memory int64 // bytes
	VCPUs  int
	State  string        // xl's letters, such as r-----
	Time   time.Duration // of its processors since it was created
}

// alive reports whether the domain is neither shutting down, crashed nor dying.
func (e Entry) alive() bool { return !strings.ContainsAny(e.State, "scd") }

// ParseList reads the output of `xl list`.
func ParseList(printed string) (all []Entry, err error) {
	lines := strings.Split(strings.TrimSpace(printed), "\n")
	if !strings.HasPrefix(lines[0], "Name") {
		return nil, fmt.Errorf("read xl list: want a table that begins with Name, got %q", lines[0])
	}
	for _, line := range lines[1:] {
		fields := strings.Fields(line)
		if len(fields) != 6 {
			return nil, fmt.Errorf("read xl list: line %q: want name, ID, memory, VCPUs, state and time", line)
		}
		id, idErr := strconv.ParseUint(fields[1], 10, 16)
		memory, memoryErr := strconv.ParseUint(fields[2], 10, 43) // in bytes it is a positive int64
		vcpus, vcpusErr := strconv.ParseUint(fields[3], 10, 16)
		seconds, timeErr := time.ParseDuration(fields[5] + "s")
		if timeErr == nil && seconds < 0 {
			timeErr = fmt.Errorf("time %s: want a time from 0", fields[5])
		}
		if err := errors.Join(idErr, memoryErr, vcpusErr, timeErr); err != nil {
			return nil, fmt.Errorf("read xl list: line %q: %w", line, err)
		}
		all = append(all, Entry{fields[0], int(id), int64(memory) << 20, int(vcpus), fields[4], seconds})
	}
	return all, nil
}
