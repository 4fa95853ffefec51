package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"unnest/internal/measure/stack"
	"unnest/internal/testbed/place"
)

// The bounds of what is done at the ends of a visit to a host that the user has
// named. An emulated guest takes seconds to remove a container.
const (
	loginTime = 20 * time.Second
	leaveTime = 30 * time.Second
)

// remote is a host that is there already, logged in to.
type remote struct {
	configuration stack.Configuration // that says how to log in
	place         place.Place
	dir           string            // on the host, for all that is written there
	hold          io.Closer         // of the directory's lock; nil: it is not held
	engine        string            // the command of its container engine; empty: none is asked for
	image         string            // of its containers
	step          func(name string) // reports progress
}

// workOnRemotes begins the directories that runs make on hosts that users name. The
// names of runs begin with "run-", and have no other dash.
const workOnRemotes = "/var/tmp/unnest-"

// newRemote logs in to a host that is there already, by the user's own keys and the
// host keys that the user knows. run names the directory that is made there. What
// killed runs have left on the host is removed.
func newRemote(ctx context.Context, c stack.Configuration, run string) (_ *remote, _ *machine, err error) {
	in, err := login(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	r := &remote{configuration: c, place: onRemote(in, c), dir: workOnRemotes + run}
	m := &machine{
		place: r.place, work: r.dir, gone: in.Done(),
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

// onRemote is a host as all its commands see it.
func onRemote(in *place.SSH, c stack.Configuration) place.Place {
	return place.Within{Place: in, Env: []string{"LC_ALL=C"}, Name: c.Host}
}

// claim makes the directory and locks it. The lock is held by a process on the host
// that ends with the connection, also when this process is killed. The directory
// gets its name, which others look for, once it is locked.
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

// removal is a shell function that removes a directory of a run and the containers
// whose names begin with the directory's. What root has written in a container on a
// volume, the user may not be able to remove: a container can. Descriptor 9 may be
// the directory's lock, which nothing that lives on is to have.
const removal = `remove() {
	dir=$1 name=${1##*/} engine= image=
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

// reap removes what runs have left on the host that were killed: directories of this
// user's that nobody locks, with their containers.
func (r *remote) reap(ctx context.Context) error {
	const script = removal + `code=0
for left in "${1%/*}"/unnest-run-*; do
	[ -d "$left" ] && [ ! -L "$left" ] && [ -O "$left" ] || continue
	(exec 9<"$left" && { ! flock -n 9 || remove "$left"; }) || [ ! -e "$left" ] || code=1
done
exit $code
`
	if err := place.Run(ctx, r.place, "sh", "-c", script, "reap", r.dir); err != nil {
		return fmt.Errorf("remove what killed runs have left on %s: %w", r.configuration.Host, err)
	}
	return nil
}

// leave removes containers and directory, and logs out. A connection that is lost,
// as when a command has not ended soon enough after Ctrl-C, is made anew for that.
func (r *remote) leave(ctx context.Context, in *place.SSH) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
	defer cancel()
	if in.Lost() {
		again, err := login(ctx, r.configuration)
		if err != nil {
			return fmt.Errorf("%s is left on %s: %w", r.dir, r.configuration.Host, err)
		}
		in, r.place = again, onRemote(again, r.configuration)
	}
	err = r.remove(ctx)
	if r.hold != nil {
		err = errors.Join(err, r.hold.Close())
	}
	return errors.Join(err, in.Close())
}

// remove removes what this run has made on the host.
func (r *remote) remove(ctx context.Context) error {
	if err := place.Run(ctx, r.place, "sh", "-c", removal+`remove "$1"`, "leave", r.dir); err != nil {
		return fmt.Errorf("%s is left on %s: %w", r.dir, r.configuration.Host, err)
	}
	return nil
}

// login logs in to the host of a configuration. Its errors say the mend.
func login(ctx context.Context, c stack.Configuration) (*place.SSH, error) {
	host, err := stack.ParseHost(c.Host)
	if err != nil {
		return nil, err
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, err
	}
	key, path, err := findKey(home, c.Identity)
	if err != nil {
		return nil, err
	}
	known := filepath.Join(home, ".ssh", "known_hosts")
	isKnown, err := knownhosts.New(known)
	if err != nil {
		return nil, fmt.Errorf("read the hosts that are known: %w: log in to %s once by ssh", err, c.Host)
	}
	address := net.JoinHostPort(host.Address, strconv.Itoa(host.Port))
	p, err := place.DialSSH(ctx, c.Host, address, new(net.Dialer).DialContext, &ssh.ClientConfig{
		User: host.User, Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, Timeout: loginTime,
		HostKeyCallback: isKnown, HostKeyAlgorithms: hostKeyAlgorithms(isKnown, address),
	})
	return p, explainLogin(err, c.Host, known, path)
}

// findKey returns the private key to log in with: that in the file identity or,
// when that is empty, the first that is there of those that ssh takes.
func findKey(home, identity string) (key ssh.Signer, path string, err error) {
	paths := []string{identity}
	if identity == "" {
		paths = nil
		for _, name := range []string{"id_ed25519", "id_ecdsa", "id_rsa"} {
			paths = append(paths, filepath.Join(home, ".ssh", name))
		}
	}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) && identity == "" {
			continue
		}
		if err != nil {
			return nil, "", fmt.Errorf("read the key to log in with: %w", err)
		}
		key, err := ssh.ParsePrivateKey(content)
		if err != nil {
			return nil, "", fmt.Errorf("read the key to log in with: %s: %w: give one without a passphrase as identity", path, err)
		}
		return key, path, nil
	}
	return nil, "", fmt.Errorf("there is no key to log in with: none of %s: name one as identity", strings.Join(paths, ", "))
}

// hostKeyAlgorithms lists those of the host's keys that are known, because a host
// with several keys shows the first that it is asked for.
func hostKeyAlgorithms(isKnown ssh.HostKeyCallback, address string) (algorithms []string) {
	var wrong *knownhosts.KeyError
	if err := isKnown(address, &net.TCPAddr{}, noKey{}); !errors.As(err, &wrong) {
		return nil
	}
	for _, k := range wrong.Want {
		switch t := k.Key.Type(); t {
		case ssh.KeyAlgoRSA:
			algorithms = append(algorithms, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256, t)
		default:
			algorithms = append(algorithms, t)
		}
	}
	return algorithms
}

// noKey is a host key that no host has.
type noKey struct{}

func (noKey) Type() string                        { return "none" }
func (noKey) Marshal() []byte                     { return nil }
func (noKey) Verify([]byte, *ssh.Signature) error { return errors.New("no key") }

// explainLogin says what a login failed for, and the mend.
func explainLogin(err error, host, known, key string) error {
	var wrong *knownhosts.KeyError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrong) && len(wrong.Want) == 0:
		return fmt.Errorf("log in to %s: its host key is not in %s: log in once by ssh", host, known)
	case errors.As(err, &wrong):
		return fmt.Errorf("log in to %s: its host key is another than in %s, line %d: it may not be the host that you mean", host, known, wrong.Want[0].Line)
	case strings.Contains(err.Error(), "unable to authenticate"):
		return fmt.Errorf("log in to %s: it does not take the key %s: add its public half to authorized_keys there, or name another as identity", host, key)
	}
	return err
}
