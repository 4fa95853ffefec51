package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"unnest.io/unnest/internal/cni/hostclient"
	"unnest.io/unnest/internal/hostapi/hostdpb"
)

const usage = `Attaches volumes and shared memory of a pod to this guest.

  unnest-volume [flags] attach volume POD NAME DIRECTORY
  unnest-volume [flags] detach volume POD NAME DIRECTORY
  unnest-volume [flags] attach memory POD NAME FILE [BYTES]
  unnest-volume [flags] detach memory POD NAME FILE
  unnest-volume driver [flags]

A volume is mounted on DIRECTORY. FILE becomes the memory, which processes map.
"attach" reads the pod's key from the standard input. "driver" serves a kubelet.

`

// Main is the binary unnest-volume. It returns the exit code: 0 done, 1 failed,
// 2 wrong usage.
func Main(ctx context.Context, args []string, in io.Reader, stdout, stderr io.Writer) int {
	var server netip.AddrPort
	var dir string
	flags := hostclient.Flags("unnest-volume", &server, &dir)
	if code, ends := hostclient.Parse(flags, args, 6, usage, stdout, stderr); ends {
		return code
	}
	c, err := parse(flags.Args(), in)
	if err == nil {
		err = c.run(ctx, server, dir)
	}
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, "unnest-volume:", err)
	if errors.Is(err, errUsage) {
		return 2
	}
	return 1
}

var errUsage = errors.New("wrong arguments; --help shows the usage")

// Verbs of the binary.
const (
	attachVolume = "attach volume"
	detachVolume = "detach volume"
	attachMemory = "attach memory"
	detachMemory = "detach memory"
)

type call struct {
	verb, pod, name, key string
	path                 string // of the directory or the file
	size                 uint64 // bytes; 0: the size of existing memory
}

// parse reads the arguments and, for attach, the key from in.
func parse(args []string, in io.Reader) (call, error) {
	if len(args) < 5 {
		return call{}, errUsage
	}
	c := call{verb: args[0] + " " + args[1], pod: args[2], name: args[3], path: args[4]}
	if !slices.Contains([]string{attachVolume, detachVolume, attachMemory, detachMemory}, c.verb) || len(args) == 6 && c.verb != attachMemory {
		return call{}, errUsage
	}
	if len(args) == 6 {
		var err error
		if c.size, err = strconv.ParseUint(args[5], 10, 64); err != nil {
			return call{}, fmt.Errorf("size %q: want a number of bytes: %w", args[5], errUsage)
		}
	}
	if args[0] == "attach" {
		key, err := io.ReadAll(io.LimitReader(in, 4096))
		if err != nil {
			return call{}, fmt.Errorf("read key: %w", err)
		}
		c.key = strings.TrimSpace(string(key))
	}
	return c, nil
}

// run does not detach what cannot be mounted: it may be in use.
func (c call) run(ctx context.Context, server netip.AddrPort, credentials string) error {
	d, err := hostclient.Dial(server, credentials)
	if err != nil {
		return err
	}
	defer d.Close()
	switch c.verb {
	case attachVolume:
		answer, err := d.AttachVolume(ctx, &hostdpb.AttachVolumeRequest{Pod: c.pod, Key: c.key, Name: c.name})
		if err != nil {
			return err
		}
		return Mount(ctx, answer.GetVolume(), c.path)
	case attachMemory:
		answer, err := d.AttachSharedMemory(ctx, &hostdpb.AttachSharedMemoryRequest{Pod: c.pod, Key: c.key, Name: c.name, Size: c.size})
		if err != nil {
			return err
		}
		return BindMemory(ctx, answer.GetMemory(), c.path)
	}
	if err := Unmount(c.path); err != nil {
		return err
	}
	if c.verb == detachVolume {
		_, err := d.DetachVolume(ctx, &hostdpb.DetachVolumeRequest{Pod: c.pod, Name: c.name})
		return err
	}
	if _, err := d.DetachSharedMemory(ctx, &hostdpb.DetachSharedMemoryRequest{Pod: c.pod, Name: c.name}); err != nil {
		return err
	}
	if info, err := os.Lstat(c.path); err == nil && info.Mode().IsRegular() && info.Size() == 0 {
		return os.Remove(c.path) // made by "attach memory"
	}
	return nil
}
