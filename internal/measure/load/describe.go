package load

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/measure/result"
)

// describe prints the machine as JSON.
func describe(stdout io.Writer) error {
	m, err := describeMachine()
	if err != nil {
		return fmt.Errorf("describe the machine: %w", err)
	}
	return json.NewEncoder(stdout).Encode(m)
}

var (
	processors = regexp.MustCompile(`(?m)^cpu\d+ `)
	modelName  = regexp.MustCompile(`(?m)^model name\s*: (.*)$`)
)

// describeMachine counts all processors of the machine, also those that this process may not use.
func describeMachine() (m result.Machine, err error) {
	var names unix.Utsname
	if err := unix.Uname(&names); err != nil {
		return m, err
	}
	files := map[string][]byte{"/proc/stat": nil, "/proc/cpuinfo": nil, "/proc/meminfo": nil}
	for path := range files {
		if files[path], err = os.ReadFile(path); err != nil {
			return m, err
		}
	}
	m.Kernel, m.Arch = unix.ByteSliceToString(names.Release[:]), unix.ByteSliceToString(names.Machine[:])
	m.VCPUs = len(processors.FindAll(files["/proc/stat"], -1))
	if found := modelName.FindSubmatch(files["/proc/cpuinfo"]); found != nil {
		m.CPU = string(found[1])
	}
	for lines := bufio.NewScanner(bytes.NewReader(files["/proc/meminfo"])); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "MemTotal:"); ok {
			var kilobytes int64
			_, err = fmt.Sscan(text, &kilobytes)
			m.Memory = kilobytes << 10
		}
	}
	return m, err
}
