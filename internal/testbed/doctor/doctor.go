// Package doctor checks what this machine can do for nested virtualization and its
// networks, and says how to fix what is missing: one check per capability.
//
// A check judges the answers of probes and changes nothing on the machine. Commands
// print the checks; users make the fixes.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"unnest.io/unnest/internal/testbed/guest"
	"unnest.io/unnest/internal/testbed/image"
)

// State is the outcome of a check.
type State string

// The states of a check.
const (
	OK      State = "ok"
	Limited State = "limited" // works, but slower or smaller than possible
	Missing State = "missing"
)

// Check is one capability of the machine.
type Check struct {
	Name     string `json:"name"`
	State    State  `json:"state"`
	Found    string `json:"found"`    // what there is, or why it is missing
	Remedy   string `json:"remedy"`   // how to fix it; empty: nothing to fix
	Required bool   `json:"required"` // the quick start needs it
}

// Examine runs all checks, in a fixed order. When ctx ends, running probes are stopped
// and what they ask for counts as missing.
func Examine(ctx context.Context, p Probes) []Check {
	checks := slices.Concat(machine(p), virtualization(ctx, p), kernel(p))
	for _, t := range tools {
		checks = append(checks, t.check(ctx, p))
	}
	return slices.Concat(checks, keys(ctx, p), []Check{volumeServer(p)})
}

// Unmet returns the names of the required checks that are missing.
func Unmet(checks []Check) (names []string) {
	for _, c := range checks {
		if c.Required && c.State == Missing {
			names = append(names, c.Name)
		}
	}
	return names
}

func require(checks ...Check) []Check {
	for i := range checks {
		checks[i].Required = true
	}
	return checks
}

// works returns a check that is OK unless err is set.
func works(name, found string, err error, remedy string) Check {
	if err != nil {
		return Check{Name: name, State: Missing, Found: err.Error(), Remedy: remedy}
	}
	return Check{Name: name, State: OK, Found: found}
}

// The needs of the quick start. With less a machine is limited, with less than half of
// the memory or disk the quick start cannot run.
const (
	wantMemory = 2 << 30 // bytes, for one guest, the client and the page cache
	wantDisk   = 4 << 30 // bytes, for packages, root file system and guest image
	wantCPUs   = 2       // one for the guest, one for the client
)

// machine checks the user and the size of the machine.
func machine(p Probes) []Check {
	processors := Check{Name: "processors", State: OK, Found: strconv.Itoa(p.CPUs)}
	if p.CPUs < wantCPUs {
		processors.State = Limited
		processors.Remedy = fmt.Sprintf("use a machine with %d or more: guest and client share one, which changes every figure", wantCPUs)
	}
	return append([]Check{user(p), architecture(p), require(memory(p))[0], diskOf(p, wantDisk), processors}, system(p)...)
}

func user(p Probes) Check {
	if !p.Root {
		return Check{Name: "root", State: Missing, Found: "running as an ordinary user", Remedy: "run unnest with sudo", Required: true}
	}
	return Check{Name: "root", State: OK, Found: "running as root", Required: true}
}

// architecture checks the processor. The programs in guests are those of this machine.
func architecture(p Probes) Check {
	if p.Arch != "amd64" {
		return Check{Name: "architecture", State: Missing, Found: p.Arch, Remedy: "use x86-64 for guests: plan, report and compare run here", Required: true}
	}
	return Check{Name: "architecture", State: OK, Found: "x86-64", Required: true}
}

// releases are those on which Unnest was tried, by ID and VERSION_ID of os-release(5). The value says how; empty: on the release itself.
var releases = map[string]string{"debian 12": "", "debian 13": inRoot, "ubuntu 24.04": inRoot}

const inRoot = ", tried with its packages, but not with its kernel"

// system names the release and its kernel.
func system(p Probes) []Check {
	release := Check{Name: "release", State: OK}
	text, err := p.ReadFile("/etc/os-release")
	values := osRelease(text)
	release.Found = cmp.Or(values["PRETTY_NAME"], "unknown")
	if err != nil {
		release.Found = err.Error()
	}
	how, tried := releases[values["ID"]+" "+values["VERSION_ID"]]
	if release.Found += how; !tried {
		release.State, release.Remedy = Limited, "use Debian 12 or 13, or Ubuntu 24.04: Unnest was not tried on other releases"
	}
	version, err := p.ReadFile("/proc/sys/kernel/osrelease")
	return []Check{release, works("kernel", "Linux "+strings.TrimSpace(version), err, "mount -t proc proc /proc")}
}

// osRelease reads the variables of os-release(5).
func osRelease(text string) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		values[key] = strings.Trim(value, `"'`)
	}
	return values
}

func memory(p Probes) Check {
	text, err := p.ReadFile("/proc/meminfo")
	if err != nil {
		return works("memory", "", err, "mount -t proc proc /proc")
	}
	_, value, found := strings.Cut(text, "MemAvailable:")
	if !found {
		return works("memory", "", errors.New("no MemAvailable in /proc/meminfo"), "use Linux 3.14 or newer")
	}
	value, _, _ = strings.Cut(value, " kB")
	available, err := strconv.ParseUint(strings.TrimSpace(value), 10, 54)
	if err != nil {
		return works("memory", "", fmt.Errorf("parse MemAvailable in /proc/meminfo: %w", err), "use Linux 3.14 or newer")
	}
	where, remedy := "available", "stop other programs, or use a larger machine"
	for _, file := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} { // a container's
		text, _ := p.ReadFile(file)
		if limit, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64); err == nil && limit>>10 < available {
			available, where, remedy = limit>>10, "for this container", "give it more memory"
		}
	}
	return enough("memory", available<<10, wantMemory, where, remedy)
}

func diskOf(p Probes, want uint64) (c Check) {
	free, err := p.FreeDisk(p.CacheDir)
	c = enough("disk", free, want, "free for "+p.CacheDir, "free some space, or set UNNEST_CACHE to a directory elsewhere")
	if err != nil {
		c = works("disk", "", err, "set UNNEST_CACHE to a writable directory")
	}
	if _, wrong := image.Limit(); wrong != nil {
		c = works("disk", "", wrong, "correct the variable")
	}
	if strings.Contains(p.CacheDir, ",") { // it ends QEMU's options
		c = works("disk", "", fmt.Errorf("%s has a comma, which guests cannot have in their paths", p.CacheDir), "set UNNEST_CACHE to a directory without one")
	}
	c.Required = true
	return c
}

// enough judges an amount in bytes.
func enough(name string, have, want uint64, where, remedy string) Check {
	c := Check{Name: name, State: OK, Found: gibibytes(have) + " " + where}
	if have >= want {
		return c
	}
	c.State = Limited
	if have < want/2 {
		c.State = Missing
	}
	c.Found += ", want " + gibibytes(want)
	c.Remedy = remedy
	return c
}

func gibibytes(n uint64) string {
	return strconv.FormatFloat(float64(n)/(1<<30), 'f', 1, 64) + " GiB"
}

// triedQEMU are the versions of QEMU with which Unnest was tried: of Debian 12, Ubuntu 24.04 and Debian 13.
var triedQEMU = []string{"7.2", "8.2", "10.0"}

func qemu(ctx context.Context, p Probes) Check {
	c := tool{name: "qemu", binary: "qemu-system-x86_64", install: "apt-get install qemu-system-x86", required: true}.check(ctx, p)
	if c.State == OK && !slices.ContainsFunc(triedQEMU, func(v string) bool { return strings.HasPrefix(c.Found, v+".") }) {
		c.State, c.Remedy = Limited, "use QEMU "+strings.Join(triedQEMU, ", ")+": Unnest was not tried with others"
	}
	return c
}

// virtualization checks what guests need.
func virtualization(ctx context.Context, p Probes) []Check {
	qemu := qemu(ctx, p)
	choice, err := p.Accel()
	if err != nil {
		return []Check{qemu, works("accelerator", "", err, "use --accel tcg")}
	}
	accelerator := Check{Name: "accelerator", State: OK, Found: string(choice.Accel) + ": " + choice.Reason}
	if choice.Accel == guest.KVM {
		return []Check{qemu, accelerator, nested(p), haltPolling(p)}
	}
	accelerator.State = Limited
	accelerator.Remedy = "enable virtualization in the firmware; on a virtual machine, enable nested virtualization on its host"
	if p.OpenDevice("/dev/kvm") != nil {
		accelerator.Remedy = "as root: modprobe kvm_intel (or kvm_amd); if that fails, " + accelerator.Remedy
	}
	nested := Check{Name: "nested virtualization", State: Limited, Found: "tcg emulates svm: an L2 guest works, but slowly", Remedy: "see accelerator"}
	if guest.NestingCPUFor("QEMU emulator version "+qemu.Found) != guest.NestingCPU {
		nested.Found += "; without nested paging, in which this QEMU fails"
	}
	return append([]Check{qemu, accelerator, nested}, xenDomains(qemu)...)
}

// XenDomains says which domains of a Xen host that this machine's QEMU emulates are known to fail, or were not tried; "": none.
func XenDomains(ctx context.Context, p Probes) string {
	for _, c := range xenDomains(qemu(ctx, p)) {
		return c.Found
	}
	return ""
}

// xenDomains says what is known to fail in a Xen host that this QEMU emulates, and with which nothing was tried. With 7.2,
// domains of all kinds run.
func xenDomains(qemu Check) []Check {
	if qemu.State == Missing || strings.HasPrefix(qemu.Found, "7.2.") {
		return nil
	}
	c := Check{Name: "xen domains", State: Limited, Found: "not tried in a Xen host emulated by this QEMU", Remedy: "for these, use Debian 12's QEMU 7.2, or a Xen host of yours over SSH"}
	if strings.HasPrefix(qemu.Found, "10.0.") {
		c.Found = "in a Xen host emulated by this QEMU, PVH and HVM domains power off at boot; PV domains run"
	}
	return []Check{c}
}

// nested checks whether the guests of KVM can have guests.
func nested(p Probes) Check {
	for _, module := range []string{"kvm_intel", "kvm_amd"} {
		value, err := p.ReadFile("/sys/module/" + module + "/parameters/nested")
		if err != nil {
			continue // the module of another processor
		}
		value = strings.TrimSpace(value)
		err = fmt.Errorf("%s has nested=%s", module, value)
		if value == "1" || value == "Y" {
			return works("nested virtualization", err.Error(), nil, "")
		}
		return works("nested virtualization", "", err, "modprobe -r "+module+" && modprobe "+module+" nested=1")
	}
	return works("nested virtualization", "", errors.New("neither kvm_intel nor kvm_amd has a parameter nested"), "use --accel tcg, which emulates svm")
}

const haltPollFile = "/sys/module/kvm/parameters/halt_poll_ns"

// haltPolling reports how long KVM polls for work of a guest that has none. Nothing here changes
// it: it is a setting of the whole host.
func haltPolling(p Probes) Check {
	value, err := p.ReadFile(haltPollFile)
	return works("halt polling", "kvm has halt_poll_ns="+strings.TrimSpace(value), err, "use Linux 4.0 or newer")
}

// kernel checks the parts of the host's kernel that make networks.
func kernel(p Probes) []Check {
	const btf = "/sys/kernel/btf/vmlinux"
	checks := append([]Check{works("tun", "/dev/net/tun opens", p.OpenDevice("/dev/net/tun"),
		"modprobe tun; start a container with --device /dev/net/tun --cap-add NET_ADMIN")}, inNamespace(p)...)
	checks = append(checks,
		works("ebpf", "a tc program loads", p.LoadProgram(), "run as root on a kernel with CONFIG_BPF_SYSCALL and CONFIG_NET_CLS_BPF"),
		works("btf", btf, p.Stat(btf), "use a kernel with CONFIG_DEBUG_INFO_BTF"))
	return append(require(checks...),
		works("vhost-net", "/dev/vhost-net opens", p.OpenDevice("/dev/vhost-net"), "modprobe vhost_net; without it, QEMU itself moves the packets"))
}

// inNamespace checks network namespaces, and links and rules in one.
func inNamespace(p Probes) []Check {
	tries := []struct {
		name, found, remedy string
		try                 func(Namespace) error
	}{
		{"bridge", "a bridge can be added", "modprobe bridge", func(n Namespace) error { return n.AddLink("bridge") }},
		{"veth", "a pair can be added", "modprobe veth", func(n Namespace) error { return n.AddLink("veth") }},
		{"nftables", "a masquerade rule can be added", "modprobe nf_tables nft_masq nft_chain_nat", Namespace.Masquerade},
	}
	var tried []Check
	err := p.Namespace(func(n Namespace) error {
		for _, t := range tries {
			tried = append(tried, works(t.name, t.found, t.try(n), t.remedy))
		}
		return nil
	})
	if tried == nil {
		for _, t := range tries {
			tried = append(tried, works(t.name, "", errors.New("not tried: no network namespace"), "see network namespaces"))
		}
	}
	return append([]Check{works("network namespaces", "one can be made", err, "run as root on a kernel with CONFIG_NET_NS")}, tried...)
}

// Purpose is what a machine is checked for by Preflight.
type Purpose string

// The purposes.
const (
	ForGuests       Purpose = "run guests"
	ForMeasurements Purpose = "run experiments"
	ForCleaning     Purpose = "remove what runs left" // needs root only
)

// Preflight returns an error unless this machine has what the purpose needs. It names all that is
// missing, with one command that installs the packages among it. It makes nothing.
func Preflight(ctx context.Context, p Probes, purpose Purpose) error {
	checks := []Check{user(p)}
	if purpose == ForCleaning {
		return unready(checks, purpose)
	}
	checks = append(checks, architecture(p), diskOf(p, p.neededDisk()), qemu(ctx, p))
	for _, t := range tools {
		if t.required && (purpose == ForMeasurements || !t.measures) {
			checks = append(checks, t.check(ctx, p))
		}
	}
	checks = append(checks, keys(ctx, p)...)
	if p.Root { // else each would say so again
		checks = append(checks, kernel(p)...)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return unready(checks, purpose)
}

// neededDisk is what the cache has to have room for: an image and its packages, or snapshots of
// guests only.
func (p Probes) neededDisk() uint64 {
	if p.HasImage() {
		return wantDisk / 8
	}
	return wantDisk
}

const installCommand = "apt-get install "

// Packages returns the Debian packages that required checks miss, sorted.
func Packages(checks []Check) (names []string) {
	for _, c := range checks {
		if name, ok := strings.CutPrefix(c.Remedy, installCommand); ok && c.Required && c.State == Missing {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// unready words what required checks miss.
func unready(checks []Check, purpose Purpose) error {
	var parts, absent []string
	for _, c := range checks {
		switch {
		case !c.Required || c.State != Missing:
		case strings.HasPrefix(c.Remedy, installCommand):
			absent = append(absent, c.Found)
		default:
			parts = append(parts, c.Name+": "+c.Found+": "+c.Remedy)
		}
	}
	if len(absent) > 0 {
		parts = append(parts, strings.Join(absent, ", ")+": "+installCommand+strings.Join(Packages(checks), " "))
	}
	if len(parts) == 0 {
		return nil
	}
	return fmt.Errorf("this machine cannot %s: %s", purpose, strings.Join(parts, "; "))
}
