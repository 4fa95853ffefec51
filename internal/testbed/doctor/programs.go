package doctor

import (
	"context"
	"fmt"
	"regexp"
)

// tool is a program that unnest runs.
type tool struct {
	name    string
	program string // name of its executable
	flag    string // prints its version; empty: --version
	pkg     string // Debian package that holds it
}

// tools are what the quick start runs beside QEMU.
var tools = []tool{
	{name: "mmdebstrap", program: "mmdebstrap", pkg: "mmdebstrap"},
	{name: "mkfs.ext4", program: "mkfs.ext4", flag: "-V", pkg: "e2fsprogs"},
	{name: "xz", program: "xz", pkg: "xz-utils"},
	{name: "dpkg-deb", program: "dpkg-deb", pkg: "dpkg"},
	{name: "sockperf", program: "sockperf", pkg: "sockperf"},
	{name: "iperf3", program: "iperf3", pkg: "iperf3"},
}

// programs checks the tools.
func programs(ctx context.Context, p Probes) []Check {
	var checks []Check
	for _, t := range tools {
		checks = append(checks, t.check(ctx, p))
	}
	return require(checks...)
}

func (t tool) check(ctx context.Context, p Probes) Check {
	found, err := t.find(ctx, p)
	return works(t.name, found, err, "apt-get install "+t.pkg)
}

// find returns the version and the path of the tool; an error when it is not
// there or does not run.
func (t tool) find(ctx context.Context, p Probes) (string, error) {
	path, err := p.LookPath(t.program)
	if err != nil {
		return "", fmt.Errorf("no %s in PATH", t.program)
	}
	flag := t.flag
	if flag == "" {
		flag = "--version"
	}
	out, err := p.Output(ctx, path, flag)
	if err != nil {
		return "", fmt.Errorf("run %s %s: %w", path, flag, err)
	}
	return firstVersion(out) + ", " + path, nil
}

var versionNumber = regexp.MustCompile(`\d+(\.\d+)+`)

// firstVersion returns the first version number in what a program says of
// itself.
func firstVersion(out string) string {
	if v := versionNumber.FindString(out); v != "" {
		return v
	}
	return "version unknown"
}
