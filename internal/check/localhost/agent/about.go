package agent

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

func (j *job) about(About) (Description, error) {
	var d Description
	host, err := os.Hostname()
	if err != nil {
		return d, err
	}
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return d, err
	}
	d.Host, d.Kernel = host, strings.TrimSpace(string(kernel))
	if d.Ephemeral, err = ephemeral(); err != nil {
		return d, err
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return d, fmt.Errorf("list network interfaces: %w", err)
	}
	for _, i := range interfaces {
		d.Interfaces = append(d.Interfaces, i.Name)
	}
	d.Addresses, err = addresses()
	return d, err
}

// addresses returns those that IsGlobalUnicast reports, which include private ones.
func addresses() (global []string, err error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			global = append(global, n.IP.String())
		}
	}
	return global, nil
}

// ephemeral reads the kernel's range of ephemeral ports.
func ephemeral() (ports [2]uint16, err error) {
	const file = "/proc/sys/net/ipv4/ip_local_port_range"
	text, err := os.ReadFile(file)
	if err != nil {
		return ports, err
	}
	if _, err := fmt.Sscan(string(text), &ports[0], &ports[1]); err != nil {
		return ports, fmt.Errorf("read %s: %q: %w", file, text, err)
	}
	return ports, nil
}

// traffic adds up the bytes sent by interfaces other than lo.
func (j *job) traffic(Traffic) (SentBytes, error) {
	const file = "/proc/self/net/dev"
	text, err := os.ReadFile(file)
	if err != nil {
		return SentBytes{}, err
	}
	sent, err := sentBytes(string(text))
	if err != nil {
		return SentBytes{}, fmt.Errorf("read %s: %w", file, err)
	}
	return SentBytes{Bytes: sent}, nil
}

// sentBytes reads /proc/net/dev. After two header lines, each interface has its name, eight
// columns for received data, and columns for sent data, which begin with bytes.
func sentBytes(text string) (uint64, error) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	var all uint64
	for _, line := range lines[min(2, len(lines)):] {
		name, columns, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "lo" {
			continue
		}
		fields := strings.Fields(columns)
		if len(fields) < 9 {
			return 0, fmt.Errorf("line %q has fewer than 9 columns", line)
		}
		bytes, err := strconv.ParseUint(fields[8], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("line %q: %w", line, err)
		}
		all += bytes
	}
	return all, nil
}

// look finds tools as exec does.
func (j *job) look(o Look) (Missing, error) {
	var missing Missing
	for _, p := range o.Programs {
		if !inPath(p) {
			missing = append(missing, p)
		}
	}
	return missing, nil
}

func inPath(program string) bool {
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if info, err := os.Stat(filepath.Join(dir, program)); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return true
		}
	}
	return false
}
