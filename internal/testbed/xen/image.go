package xen

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"unnest.io/unnest/internal/testbed/image"
	"unnest.io/unnest/internal/testbed/place"
)

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

// putRoot copies the root file system, compressed, and leaves its holes.
func (h *Host) putRoot(ctx context.Context, path string) error {
	const script = `set -e; trap 'rm -f "$1.put"' EXIT; gzip -dc | dd of="$1.put" bs=64k iflag=fullblock conv=sparse status=none; mv "$1.put" "$1"`
	root, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read image: %w", err)
	}
	defer root.Close()
	content, to := io.Pipe()
	go func() { _ = to.CloseWithError(compress(to, root)) }()
	process, err := h.Dom0.Start(ctx, place.Command{Args: []string{"sh", "-c", script, "put", h.Image.Root}, Stdin: content})
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
