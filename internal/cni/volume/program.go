package volume

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"

	"unnest/internal/cni/hostclient"
	"unnest/internal/hostapi/hostdpb"
)

const usage = `Attaches volumes and shared memory of a pod to this guest, by hand.

  unnest-volume [flags] attach volume POD NAME DIRECTORY
  unnest-volume [flags] detach volume POD NAME DIRECTORY
  unnest-volume [flags] attach memory POD NAME FILE [BYTES]
  unnest-volume [flags] detach memory POD NAME FILE

A volume is mounted on DIRECTORY; FILE becomes the memory, which programs map. To
attach, the pod's key is read from the standard input.

`

// settings are the program's flags.
type settings struct {
	server      netip.AddrPort
	credentials string
}

// Main is the program unnest-volume. It returns the exit code: 2 for a wrong call.
func Main(ctx context.Context, args []string, in io.Reader, stderr io.Writer) int {
	flags := flag.NewFlagSet("unnest-volume", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, usage)
		flags.PrintDefaults()
	}
	var s settings
	flags.TextVar(&s.server, "server", netip.MustParseAddrPort("10.200.0.1:7443"), "`ADDRESS:PORT` of the host daemon")
	flags.StringVar(&s.credentials, "credentials", "/etc/unnest", "`DIRECTORY` of this guest's certificate")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	err := s.run(ctx, flags.Args(), in)
	if err != nil {
		fmt.Fprintln(stderr, err)
	}
	switch {
	case errors.Is(err, errUsage):
		return 2
	case err != nil:
		return 1
	}
	return 0
}

var errUsage = errors.New("wrong arguments: -help tells the right ones")

func (s settings) run(ctx context.Context, args []string, in io.Reader) error {
	if len(args) != 5 && (len(args) != 6 || args[0] != "attach" || args[1] != "memory") {
		return errUsage
	}
	verb := verbs[args[0]+" "+args[1]]
	if verb == nil {
		return errUsage
	}
	c := call{pod: args[2], name: args[3], path: args[4]}
	if len(args) == 6 {
		if _, err := fmt.Sscan(args[5], &c.size); err != nil {
			return fmt.Errorf("%w: %q: want a number of bytes", errUsage, args[5])
		}
	}
	if args[0] == "attach" {
		key, err := io.ReadAll(io.LimitReader(in, 4096))
		if err != nil {
			return fmt.Errorf("read key: %w", err)
		}
		c.key = strings.TrimSpace(string(key))
	}
	client, err := hostclient.Dial(s.server, s.credentials)
	if err != nil {
		return err
	}
	defer client.Close()
	return verb(ctx, client, c)
}

// call is what a verb is called for.
type call struct {
	pod, name, key string
	path           string // of the directory or the file
	size           uint64 // bytes; 0: that of the memory that there is
}

var verbs = map[string]func(context.Context, hostclient.Client, call) error{
	"attach volume": attachVolume, "detach volume": detachVolume, "attach memory": attachMemory, "detach memory": detachMemory,
}

// attachVolume leaves a volume attached that cannot be mounted: it may be in use.
func attachVolume(ctx context.Context, d hostclient.Client, c call) error {
	v, err := d.AttachVolume(ctx, &hostdpb.AttachVolumeRequest{Pod: c.pod, Key: c.key, Name: c.name})
	if err != nil {
		return err
	}
	return Mount(ctx, v, c.path)
}

func detachVolume(ctx context.Context, d hostclient.Client, c call) error {
	if err := Unmount(c.path); err != nil {
		return err
	}
	return d.DetachVolume(ctx, c.pod, c.name)
}

func attachMemory(ctx context.Context, d hostclient.Client, c call) error {
	m, err := d.AttachSharedMemory(ctx, &hostdpb.AttachSharedMemoryRequest{Pod: c.pod, Key: c.key, Name: c.name, Size: c.size})
	if err != nil {
		return err
	}
	return BindMemory(ctx, m, c.path)
}

// detachMemory removes the file, which is empty once nothing is bound to it.
func detachMemory(ctx context.Context, d hostclient.Client, c call) error {
	if err := Unmount(c.path); err != nil {
		return err
	}
	if err := d.DetachSharedMemory(ctx, c.pod, c.name); err != nil {
		return err
	}
	if info, err := os.Lstat(c.path); err == nil && info.Mode().IsRegular() && info.Size() == 0 {
		return os.Remove(c.path)
	}
	return nil
}
