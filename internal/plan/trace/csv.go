package trace

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"

	"unnest/internal/plan/cluster"
)

// ownColumns are the columns of our own formats.
var ownColumns = []string{"user", "pod", "container", "cpu", "memory"}

// readCSV reads our own format. The first line names the columns user, pod, container,
// cpu and memory, in any order; other columns are skipped. cpu is a decimal number of
// vCPUs, or of thousandths with the suffix m. memory is a decimal number of bytes, or has
// one of the suffixes k, M, G, T, P for powers of 1000 and Ki, Mi, Gi, Ti, Pi for powers of
// 1024. Pods are named within their user. A name with a comma or a double quote is in
// double quotes, with quotes in it doubled.
func readCSV(ctx context.Context, paths []string, o *Options, rep *Report) ([]cluster.User, error) {
	return readTable(ctx, paths, o, rep, parseCSV)
}

func parseCSV(o *Options) parse[rowTable] {
	h, seen := needs(ownColumns...), names{}
	return func(line []byte, r *rowTable) (Reason, error) {
		c, why, err := h.read(line)
		if err != nil || why != kept {
			return why, err
		}
		r.user, r.pod, r.name = seen.of(c[0]), seen.of(c[1]), seen.of(c[2])
		if err := r.named(); err != nil {
			return kept, err
		}
		cpu, err := quantity("cpu", c[3], cluster.VCPU, cpuSuffixes)
		if errors.Is(err, errNotDecimal) {
			return kept, inColumn("cpu", c[3], errors.New("want vCPUs, such as 2 or 500m"))
		} else if err != nil {
			return kept, err
		}
		memory, err := quantity("memory", c[4], 1, memorySuffixes)
		if errors.Is(err, errNotDecimal) {
			return kept, inColumn("memory", c[4], errors.New("want bytes or 4Gi, 512Mi"))
		}
		r.request = o.request(cpu, memory)
		return kept, err
	}
}

func (r *rowTable) named() error {
	switch "" {
	case r.user:
		return errors.New("the user has no name")
	case r.pod:
		return errors.New("the pod has no name")
	case r.name:
		return errors.New("the container has no name")
	}
	return nil
}

// suffix multiplies the unit by 10^shift × factor.
type suffix struct {
	name   string
	shift  int
	factor int64
}

var (
	cpuSuffixes    = []suffix{{"m", -3, 1}}
	memorySuffixes = []suffix{
		{"Ki", 0, 1 << 10}, {"Mi", 0, 1 << 20}, {"Gi", 0, 1 << 30}, {"Ti", 0, 1 << 40}, {"Pi", 0, 1 << 50},
		{"k", 3, 1}, {"M", 6, 1}, {"G", 9, 1}, {"T", 12, 1}, {"P", 15, 1},
	}
)

func quantity(column string, text []byte, unit int64, suffixes []suffix) (amount, error) {
	for _, s := range suffixes {
		if digits, has := strings.CutSuffix(string(text), s.name); has && digits != "" {
			return amountOf(column, []byte(digits), unit*s.factor, -s.shift)
		}
	}
	return amountOf(column, text, unit, 0)
}

// WriteCSV writes users in our own format, which Read reads as "csv". The format has no
// column for Overhead, Whole and Links of a pod; a pod with them is an error.
func WriteCSV(w io.Writer, users iter.Seq[cluster.User]) error {
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
