package trace

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"

	"unnest.io/unnest/internal/plan/cluster"
)

// ownColumns are the columns of our own formats.
var ownColumns = []string{"user", "pod", "container", "cpu", "memory"}

// writeCSV writes users in our own format, which Read reads as csv. It has no
// column for Overhead, Whole and Links of a pod; a pod with them is an error.
func writeCSV(w io.Writer, users iter.Seq[cluster.User]) error {
	b := bufio.NewWriter(w)
	line := append([]byte(strings.Join(ownColumns, ",")), '\n')
	for u := range users {
		for _, p := range u.Pods {
			if p.Overhead != (cluster.Resources{}) || p.Whole || len(p.Links) > 0 {
				return fmt.Errorf("write pod %s of %s: the csv format has no column for overhead, links or pods that stay whole", p.Name, u.Name)
			}
			for _, c := range p.Containers {
				if _, err := b.Write(line); err != nil {
					return err
				}
				line = appendRow(line[:0], u.Name, p.Name, c)
			}
		}
	}
	if _, err := b.Write(line); err != nil {
		return err
	}
	return b.Flush()
}

func appendRow(line []byte, user, pod string, c cluster.Container) []byte {
	for _, name := range []string{user, pod, c.Name} {
		line = append(appendName(line, name), ',')
	}
	line = appendVCPU(line, c.Request.CPU)
	line = append(line, ',')
	line = strconv.AppendInt(line, c.Request.Memory, 10)
	return append(line, '\n')
}

func appendName(line []byte, name string) []byte {
	if !strings.ContainsAny(name, `,"`) {
		return append(line, name...)
	}
	return append(line, `"`+strings.ReplaceAll(name, `"`, `""`)+`"`...)
}

// appendVCPU writes billionths of a vCPU as a decimal.
func appendVCPU(line []byte, cpu int64) []byte {
	line = strconv.AppendInt(line, cpu/cluster.VCPU, 10)
	if rest := cpu % cluster.VCPU; rest != 0 {
		digits := strconv.Itoa(int(cluster.VCPU + rest))[1:]
		line = append(append(line, '.'), strings.TrimRight(digits, "0")...)
	}
	return line
}
