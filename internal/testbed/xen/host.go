// Package xen creates domains on a Xen host that is reached as a place, and counts what they get of
// the processors: PV, PVH and HVM domains, by the command xl in dom0. The host is a guest that the
// project boots with Xen, or a machine of the user's.
//
// What domains there are is asked of xl, never kept. It knows nothing about labs and experiments.
package xen

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cavaliergopher/cpio"
	"golang.org/x/crypto/ssh"

	"unnest.io/unnest/internal/testbed/image"
	"unnest.io/unnest/internal/testbed/place"
)

// Host is a Xen host.
type Host struct {
	Dom0  place.Place  // its commands run as root
	Dial  place.Dialer // connects to domains, from dom0
	Dir   string       // of the run, in dom0. Its name is the prefix of the names of the domains
	Image Image
	Key   ssh.Signer // logs in to domains
	// Reached says that dom0 forwards between its networks and the domains; else dom0 alone reaches them.
	Reached bool
	// Uplink is the NIC through which dom0 answers ARP for the domains. If it is empty, clients need a
	// route to Network through dom0.
	Uplink   string
	Emulated bool // its processors are emulated
}

// Image are the files of the domains: paths in dom0, but Initrd is on this host.
type Image struct {
	Kernel string
	Initrd string
	Root   string // a file or a disk
}

// Facts are what a Xen host says about itself.
type Facts struct {
	Version string
	Kinds   []Kind // that it runs
}

//go:embed scripts/dom0
var dom0Script string

//go:embed scripts/remove
var removeScript string

// Removal is the shell function remove_domains, which removes the domains of the run with a
// directory, their files and their bridge. It does nothing where a run has none.
func Removal() string { return removeScript }

// Prepare prepares dom0: Xen's services and the bridge of the domains.
func (h *Host) Prepare(ctx context.Context) (Facts, error) {
	gateway := netip.PrefixFrom(gateway, network.Bits()).String()
	out, err := place.Output(ctx, h.Dom0, "sh", "-c", dom0Script, "dom0", h.Dir, gateway, strconv.FormatBool(h.Reached), h.Uplink)
	if err != nil {
		return Facts{}, fmt.Errorf("prepare Xen on %s: %w", h.Dom0, err)
	}
	return parseFacts(string(out))
}

// parseFacts reads the version of Xen and its capabilities, a line each.
func parseFacts(printed string) (Facts, error) {
	version, capabilities, ok := strings.Cut(strings.TrimSpace(printed), "\n")
	if !ok || version == "" {
		return Facts{}, fmt.Errorf("read xl info: want version and capabilities, got %q", printed)
	}
	f := Facts{Version: version}
	if strings.Contains(capabilities, "xen-3.0-x86_64") {
		f.Kinds = append(f.Kinds, PV)
	}
	if strings.Contains(capabilities, "hvm-3.0-x86_64") {
		f.Kinds = append(f.Kinds, PVH, HVM)
	}
	return f, nil
}

// Remove removes the domains of the run, their files and their bridge.
func (h *Host) Remove(ctx context.Context) error {
	if err := place.Run(ctx, h.Dom0, "sh", "-c", removeScript+`remove_domains "$1"`, "remove", h.Dir); err != nil {
		return fmt.Errorf("remove domains %s on %s: %w", h.name("*"), h.Dom0, err)
	}
	return nil
}

// name is the name of a domain in Xen.
func (h *Host) name(domain string) string { return path.Base(h.Dir) + "-" + domain }

// List returns the domains of the run.
func (h *Host) List(ctx context.Context) ([]Entry, error) {
	out, err := place.Output(ctx, h.Dom0, "xl", "list")
	if err != nil {
		return nil, fmt.Errorf("list domains: %w", err)
	}
	all, err := ParseList(string(out))
	return slices.DeleteFunc(all, func(e Entry) bool { return !strings.HasPrefix(e.Name, h.name("")) }), err
}

// Own returns the name of a domain of the run by its name in Xen; ok is false for other domains.
func (h *Host) Own(name string) (domain string, ok bool) { return strings.CutPrefix(name, h.name("")) }

//go:embed scripts/init
var initScript []byte

// archive is what the domain's initrd has beyond the one that all share: its first process, and its
// seed. The kernel unpacks both, one after the other.
func (d *Domain) archive() ([]byte, error) {
	seed, err := d.seed().Archive()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := cpio.NewWriter(&b)
	for _, f := range []struct {
		name    string
		mode    cpio.FileMode
		content []byte
	}{{"domain-init", 0o755, initScript}, {"seed.tar", 0o600, seed}} {
		err = errors.Join(err, w.WriteHeader(&cpio.Header{Name: f.name, Mode: cpio.TypeReg | f.mode, Size: int64(len(f.content)), Links: 1}))
		_, writeErr := w.Write(f.content)
		err = errors.Join(err, writeErr)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, fmt.Errorf("write initrd of domain %s: %w", d.Name, err)
	}
	return b.Bytes(), nil
}

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

// imageDir has the images of domains, which stay for the next run.
const imageDir = "/var/tmp/unnest-images/"

// SetImage gives the domains an image, which dom0 has or gets: a host that the project has booted
// has it as a disk, and the kernel as its own. To another host it is copied once.
func (h *Host) SetImage(ctx context.Context, i image.Image, step func(string)) error {
	const script = `for disk in /sys/block/vd*; do
	read -r serial <"$disk/serial" || :
	[ "$serial" != unnest-root ] || { echo "/dev/${disk##*/}"; exec ls /boot/vmlinuz-*; }
done 2>/dev/null
[ ! -e "$1/root.ext4" ] || [ ! -e "$1/vmlinuz" ] || printf '%s\n' "$1/root.ext4" "$1/vmlinuz"
`
	dir := imageDir + i.Digest
	out, err := place.Output(ctx, h.Dom0, "sh", "-c", script, "image", dir)
	if err != nil {
		return fmt.Errorf("find the image of domains on %s: %w", h.Dom0, err)
	}
	h.Image = Image{Initrd: i.Initrd, Root: dir + "/root.ext4", Kernel: dir + "/vmlinuz"}
	if found := strings.Fields(string(out)); len(found) == 2 {
		h.Image.Root, h.Image.Kernel = found[0], found[1]
		return nil
	}
	step(fmt.Sprintf("copy the image of domains to %s (once)", h.Dom0))
	kernel, err := os.Open(i.Compressed)
	if err != nil {
		return fmt.Errorf("read image: %w", err)
	}
	defer kernel.Close()
	if err := h.Dom0.Put(ctx, h.Image.Kernel, 0o644, kernel); err != nil {
		return err
	}
	return h.putRoot(ctx, i.Root)
}

// putRoot copies the root file system, compressed, and leaves its holes. dom0 compares the size: the shell has dd's exit code only.
func (h *Host) putRoot(ctx context.Context, path string) error {
	const script = `set -e; trap 'rm -f "$1.put"' EXIT; gzip -dc | dd of="$1.put" bs=64k iflag=fullblock conv=sparse status=none; [ "$(stat -c %s "$1.put")" = "$2" ] || { echo "only a part arrived" >&2; exit 1; }; mv "$1.put" "$1"`
	root, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read image: %w", err)
	}
	defer root.Close()
	info, err := root.Stat()
	if err != nil {
		return fmt.Errorf("read image: %w", err)
	}
	content, to := io.Pipe()
	go func() { _ = to.CloseWithError(compress(to, root)) }()
	process, err := h.Dom0.Start(ctx, place.Command{Args: []string{"sh", "-c", script, "put", h.Image.Root, strconv.FormatInt(info.Size(), 10)}, Stdin: content})
	if err == nil {
		err = process.Wait()
	}
	if err := errors.Join(err, content.Close()); err != nil {
		return fmt.Errorf("copy the image of domains: %w", err)
	}
	return nil
}

func compress(to io.Writer, from io.Reader) error {
	buffered := bufio.NewWriterSize(to, 256<<10)
	w, err := gzip.NewWriterLevel(buffered, gzip.BestSpeed)
	if err == nil {
		_, err = io.Copy(w, from)
	}
	if err != nil {
		return err
	}
	return errors.Join(w.Close(), buffered.Flush())
}
