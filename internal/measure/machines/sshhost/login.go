package sshhost

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

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/testbed/place"
)

// Login logs in to the host of a configuration.
func Login(ctx context.Context, c stack.Configuration) (*place.SSH, error) {
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
		return nil, fmt.Errorf("read known hosts: %w: log in to %s once by ssh", err, c.Host)
	}
	address := net.JoinHostPort(host.Address, strconv.Itoa(host.Port))
	p, err := place.DialSSH(ctx, c.Host, address, new(net.Dialer).DialContext, &ssh.ClientConfig{
		User: host.User, Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, Timeout: loginTimeout,
		HostKeyCallback: isKnown, HostKeyAlgorithms: hostKeyAlgorithms(isKnown, address),
	})
	return p, explainLogin(err, c.Host, known, path)
}

// findKey returns the private key in the file identity or, if identity is empty, the
// first of ssh's default keys that exists.
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
			return nil, "", fmt.Errorf("read login key: %w", err)
		}
		key, err := ssh.ParsePrivateKey(content)
		if err != nil {
			return nil, "", fmt.Errorf("read login key: %s: %w: name one without a passphrase as identity", path, err)
		}
		return key, path, nil
	}
	return nil, "", fmt.Errorf("there is no key to log in with: %s do not exist: name one as identity", strings.Join(paths, ", "))
}

// hostKeyAlgorithms lists the algorithms of the known keys of the host. A host with
// several keys shows the first one that it is asked for.
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

// noKey is a key that matches none.
type noKey struct{}

func (noKey) Type() string                        { return "none" }
func (noKey) Marshal() []byte                     { return nil }
func (noKey) Verify([]byte, *ssh.Signature) error { return errors.New("no key") }

// explainLogin adds the cause and the fix to the error of a login.
func explainLogin(err error, host, known, key string) error {
	var wrong *knownhosts.KeyError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrong) && len(wrong.Want) == 0:
		return fmt.Errorf("log in to %s: its host key is not in %s: log in once by ssh", host, known)
	case errors.As(err, &wrong):
		return fmt.Errorf("log in to %s: its host key differs from the one in %s, line %d: check that it is the host that you mean", host, known, wrong.Want[0].Line)
	case strings.Contains(err.Error(), "unable to authenticate"):
		return fmt.Errorf("log in to %s: it refuses the key %s: add its public half to authorized_keys there, or name another as identity", host, key)
	}
	return err
}
