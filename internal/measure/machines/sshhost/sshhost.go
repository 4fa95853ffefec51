// Package sshhost uses a host that the user has named, over SSH: it logs in by the user's own keys, makes a
// directory for the run, finds a container engine, and removes what this run and dead runs have left there.
package sshhost

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/testbed/place"
	"unnest.io/unnest/internal/testbed/xen"
)

// The time limits of login and clean-up on a host that the user has named. A busy emulated
// guest takes half a minute to remove two containers.
const (
	loginTimeout = 20 * time.Second
	LeaveTimeout = 90 * time.Second
)

// Host is a host that the user has named, logged in to.
type Host struct {
	configuration stack.Configuration // says how to log in
	Place         place.Place
	SSH           *place.SSH        // the connection
	Dir           string            // of this run, on the host
	hold          io.Closer         // releases the lock of dir; nil: not locked
	engine        string            // command of its container engine; empty: not needed
	image         string            // of its containers
	Step          func(name string) // reports progress
}

// WorkPrefix is the prefix of the directories that runs make on hosts of users. The
// name of a run begins with "run-" and has no other dash.
const WorkPrefix = "/var/tmp/unnest-"

// New logs in to a host by the user's own keys and known host keys, and removes
// what dead runs left there. run is the name of the directory to make.
func New(ctx context.Context, c stack.Configuration, run string) (_ *Host, _ *machine.Machine, err error) {
	in, err := Login(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	r := &Host{configuration: c, Place: On(in, c), SSH: in, Dir: WorkPrefix + run}
	address, _, err := net.SplitHostPort(in.Client().RemoteAddr().String())
	if err != nil {
		return nil, nil, errors.Join(err, in.Close())
	}
	m := &machine.Machine{
		Place: r.Place, Address: address, Work: r.Dir, Gone: in.Done(),
		Died: func() error {
			if in.Lost() {
				return fmt.Errorf("host %s no longer answers", c.Host)
			}
			return nil
		},
		Close: func() error { return r.leave(ctx, in) },
	}
	if err := errors.Join(r.reap(ctx), r.claim(ctx)); err != nil {
		return nil, nil, errors.Join(err, m.Close())
	}
	return r, m, nil
}

// On returns the host as a place for all its commands.
func On(in *place.SSH, c stack.Configuration) place.Place {
	return place.Within{Place: in, Env: []string{"LC_ALL=C"}, Name: c.Host}
}

// ListenAddress returns the address of a host at which it was logged in to, as the host sees it. A UDP server
// that listens on all addresses could answer from another one. It returns "", for all addresses, if the host
// does not say.
func ListenAddress(ctx context.Context, p place.Place) string {
	// SSH_CONNECTION: address and port of the client, then of the server (ssh(1)).
	out, err := place.Output(ctx, p, "sh", "-c", `set -- $SSH_CONNECTION; echo "$3"`)
	address := strings.TrimSpace(string(out))
	if err != nil || net.ParseIP(address) == nil {
		return ""
	}
	return address
}

//go:embed claim.sh
var claimScript string

// claim makes the directory and locks it. A process on the host holds the lock. It ends
// with the connection, also when this process is killed. The directory gets its final
// name, for which other runs look, only when it is locked.
func (r *Host) claim(ctx context.Context) error {
	held, out := io.Pipe()
	stdin, hold := io.Pipe()
	process, err := r.Place.Start(context.WithoutCancel(ctx), place.Command{
		Args: []string{"sh", "-c", claimScript, "claim", r.Dir}, Stdin: stdin, Stdout: out,
	})
	if err != nil {
		return err
	}
	r.hold = hold
	go func() { _ = out.CloseWithError(process.Wait()) }()
	stop := context.AfterFunc(ctx, func() { _ = held.CloseWithError(context.Cause(ctx)) })
	defer stop()
	if _, err := io.ReadFull(held, make([]byte, len("held\n"))); err != nil {
		return fmt.Errorf("make %s on %s: %w", r.Dir, r.configuration.Host, err)
	}
	return nil
}

// removal is a shell function that removes the directory of a run and the containers
// whose names begin with the directory's. The user may not be allowed to remove files
// that root in a container wrote to a volume, so a container removes them. Processes
// that live on must not inherit descriptor 9, which can be the directory's lock. Domains of
// Xen go with the directory, too.
var removal = xen.Removal() + removeScript

//go:embed remove.sh
var removeScript string

// reap removes what dead runs left on the host: directories of this user that nobody
// locks, with their containers.
func (r *Host) reap(ctx context.Context) error {
	script := removal + `code=0
for left in "${1%/*}"/unnest-run-*; do
	[ -d "$left" ] && [ ! -L "$left" ] && [ -O "$left" ] || continue
	(exec 9<"$left" && { ! flock -n 9 || remove "$left"; }) || [ ! -e "$left" ] || code=1
done
exit $code
`
	if err := place.Run(ctx, r.Place, "sh", "-c", script, "reap", r.Dir); err != nil {
		return fmt.Errorf("remove what dead runs left on %s: %w", r.configuration.Host, err)
	}
	return nil
}

// leave removes the containers and the directory, and logs out. If the connection is
// lost, as after Ctrl-C when a command did not end in time, it logs in again first.
func (r *Host) leave(ctx context.Context, in *place.SSH) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), LeaveTimeout)
	defer cancel()
	if in.Lost() {
		again, err := Login(ctx, r.configuration)
		if err != nil {
			return fmt.Errorf("%s is left on %s: %w", r.Dir, r.configuration.Host, err)
		}
		in, r.SSH, r.Place = again, again, On(again, r.configuration)
	}
	err = r.remove(ctx)
	if r.hold != nil {
		err = errors.Join(err, r.hold.Close())
	}
	return errors.Join(err, in.Close())
}

// remove removes what this run made on the host.
func (r *Host) remove(ctx context.Context) error {
	if err := place.Run(ctx, r.Place, "sh", "-c", removal+`remove "$1"`, "leave", r.Dir); err != nil {
		return fmt.Errorf("%s is left on %s: %w", r.Dir, r.configuration.Host, err)
	}
	return nil
}
