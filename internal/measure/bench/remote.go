package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"unnest/internal/measure/stack"
	"unnest/internal/testbed/place"
	"unnest/internal/testbed/xen"
)

// The time limits of login and clean-up on a host that the user has named. A busy emulated
// guest takes half a minute to remove two containers.
const (
	loginTimeout = 20 * time.Second
	leaveTimeout = 90 * time.Second
)

// remote is a host that the user has named, logged in to.
type remote struct {
	configuration stack.Configuration // says how to log in
	place         place.Place
	ssh           *place.SSH        // the connection
	dir           string            // of this run, on the host
	hold          io.Closer         // releases the lock of dir; nil: not locked
	engine        string            // command of its container engine; empty: not needed
	image         string            // of its containers
	step          func(name string) // reports progress
}

// workOnRemotes is the prefix of the directories that runs make on hosts of users. The
// name of a run begins with "run-" and has no other dash.
const workOnRemotes = "/var/tmp/unnest-"

// newRemote logs in to a host by the user's own keys and known host keys, and removes
// what dead runs left there. run is the name of the directory to make.
func newRemote(ctx context.Context, c stack.Configuration, run string) (_ *remote, _ *machine, err error) {
	in, err := login(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	r := &remote{configuration: c, place: onRemote(in, c), ssh: in, dir: workOnRemotes + run}
	address, _, err := net.SplitHostPort(in.Client().RemoteAddr().String())
	if err != nil {
		return nil, nil, errors.Join(err, in.Close())
	}
	m := &machine{
		place: r.place, address: address, work: r.dir, gone: in.Done(),
		died: func() error {
			if in.Lost() {
				return fmt.Errorf("host %s no longer answers", c.Host)
			}
			return nil
		},
		close: func() error { return r.leave(ctx, in) },
	}
	if err := errors.Join(r.reap(ctx), r.claim(ctx)); err != nil {
		return nil, nil, errors.Join(err, m.close())
	}
	return r, m, nil
}

// onRemote returns the host as a place for all its commands.
func onRemote(in *place.SSH, c stack.Configuration) place.Place {
	return place.Within{Place: in, Env: []string{"LC_ALL=C"}, Name: c.Host}
}

// listenAddress returns the address of a host at which it was logged in to, as the host sees it. A UDP server
// that listens on all addresses could answer from another one. It returns "", for all addresses, if the host
// does not say.
func listenAddress(ctx context.Context, p place.Place) string {
	// SSH_CONNECTION: address and port of the client, then of the server (ssh(1)).
	out, err := place.Output(ctx, p, "sh", "-c", `set -- $SSH_CONNECTION; echo "$3"`)
	address := strings.TrimSpace(string(out))
	if err != nil || net.ParseIP(address) == nil {
		return ""
	}
	return address
}

// claim makes the directory and locks it. A process on the host holds the lock. It ends
// with the connection, also when this process is killed. The directory gets its final
// name, for which other runs look, only when it is locked.
func (r *remote) claim(ctx context.Context) error {
	const script = `set -e
new=${1%/*}/.${1##*/}
mkdir "$new"
exec 9<"$new"
flock 9
mv "$new" "$1"
echo held
exec cat >/dev/null
`
	held, out := io.Pipe()
	stdin, hold := io.Pipe()
	process, err := r.place.Start(context.WithoutCancel(ctx), place.Command{
		Args: []string{"sh", "-c", script, "claim", r.dir}, Stdin: stdin, Stdout: out,
	})
	if err != nil {
		return err
	}
	r.hold = hold
	go func() { _ = out.CloseWithError(process.Wait()) }()
	stop := context.AfterFunc(ctx, func() { _ = held.CloseWithError(context.Cause(ctx)) })
	defer stop()
	if _, err := io.ReadFull(held, make([]byte, len("held\n"))); err != nil {
		return fmt.Errorf("make %s on %s: %w", r.dir, r.configuration.Host, err)
	}
	return nil
}

// removal is a shell function that removes the directory of a run and the containers
// whose names begin with the directory's. The user may not be allowed to remove files
// that root in a container wrote to a volume, so a container removes them. Processes
// that live on must not inherit descriptor 9, which can be the directory's lock. Domains of
// Xen go with the directory, too.
var removal = xen.Removal() + `remove() {
	dir=$1 name=${1##*/} engine= image=
	remove_domains "$dir" || return 1
	if [ -s "$dir/.engine" ]; then
		{ read -r engine && read -r image; } <"$dir/.engine"
		all=$("$engine" ps --all --format '{{.Names}}' 9<&-) || return 1
		own=$(echo "$all" | grep "^$name-" || :)
		[ -z "$own" ] || "$engine" rm --force $own >/dev/null 9<&- || return 1
	fi
	rm -rf -- "$dir"/* 2>/dev/null || [ -z "$image" ] ||
		"$engine" run --rm --network none --volume "$dir:$dir" "$image" sh -c 'rm -rf -- "$1"/*' remove "$dir" >/dev/null 9<&-
	rm -rf -- "$dir"
}
`

// reap removes what dead runs left on the host: directories of this user that nobody
// locks, with their containers.
func (r *remote) reap(ctx context.Context) error {
	script := removal + `code=0
for left in "${1%/*}"/unnest-run-*; do
	[ -d "$left" ] && [ ! -L "$left" ] && [ -O "$left" ] || continue
	(exec 9<"$left" && { ! flock -n 9 || remove "$left"; }) || [ ! -e "$left" ] || code=1
done
exit $code
`
	if err := place.Run(ctx, r.place, "sh", "-c", script, "reap", r.dir); err != nil {
		return fmt.Errorf("remove what dead runs left on %s: %w", r.configuration.Host, err)
	}
	return nil
}

// leave removes the containers and the directory, and logs out. If the connection is
// lost, as after Ctrl-C when a command did not end in time, it logs in again first.
func (r *remote) leave(ctx context.Context, in *place.SSH) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	if in.Lost() {
		again, err := login(ctx, r.configuration)
		if err != nil {
			return fmt.Errorf("%s is left on %s: %w", r.dir, r.configuration.Host, err)
		}
		in, r.ssh, r.place = again, again, onRemote(again, r.configuration)
	}
	err = r.remove(ctx)
	if r.hold != nil {
		err = errors.Join(err, r.hold.Close())
	}
	return errors.Join(err, in.Close())
}

// remove removes what this run made on the host.
func (r *remote) remove(ctx context.Context) error {
	if err := place.Run(ctx, r.place, "sh", "-c", removal+`remove "$1"`, "leave", r.dir); err != nil {
		return fmt.Errorf("%s is left on %s: %w", r.dir, r.configuration.Host, err)
	}
	return nil
}
