package bench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"unnest/internal/place"
	"unnest/internal/stack"
)

// The bounds of what is done at the ends of a visit to a host that the user has
// named.
const (
	loginTime = 20 * time.Second
	leaveTime = 20 * time.Second
)

// newRemote logs in to a host that is there already, by the user's own keys and the
// host keys that the user knows. run names the directory that is made there.
func newRemote(ctx context.Context, c stack.Configuration, run string) (*system, error) {
	p, err := login(ctx, c)
	if err != nil {
		return nil, err
	}
	dir := "/var/tmp/unnest-" + run
	return &system{
		place: place.Within{Place: p, Env: []string{"LC_ALL=C"}, Name: c.Host}, work: dir, gone: p.Done(),
		died: func() error {
			if p.Lost() {
				return fmt.Errorf("host %s no longer answers", c.Host)
			}
			return nil
		},
		close: func() error {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
			defer cancel()
			if err := place.Run(ctx, p, "rm", "-rf", "--", dir); err != nil {
				return fmt.Errorf("%s is left on %s: %w", dir, c.Host, err)
			}
			return p.Close()
		},
	}, nil
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
