package sshhost

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"unnest.io/unnest/internal/measure/benchtest"
	"unnest.io/unnest/internal/testbed/place"
)

// newKeys returns a key of each type.
func newKeys(t *testing.T) (ed, ec ssh.Signer, private ed25519.PrivateKey) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if ed, err = ssh.NewSignerFromKey(private); err == nil {
		ec, err = ssh.NewSignerFromKey(curve)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ed, ec, private
}

// A host is asked for its known keys only. Otherwise it could show another of its keys,
// which would look like another host.
func TestHostKeyAlgorithms(t *testing.T) {
	ed, ec, _ := newKeys(t)
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	old, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "known_hosts")
	benchtest.Write(t, path, strings.Join([]string{
		knownhosts.Line([]string{"[127.0.0.1]:2222"}, ed.PublicKey()),
		knownhosts.Line([]string{"both.example"}, ec.PublicKey()),
		knownhosts.Line([]string{knownhosts.HashHostname("both.example")}, ed.PublicKey()),
		knownhosts.Line([]string{"rsa.example"}, old.PublicKey()),
	}, "\n")+"\n")
	isKnown, err := knownhosts.New(path)
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string][]string{
		"127.0.0.1:2222":  {ssh.KeyAlgoED25519},
		"127.0.0.1:22":    nil,
		"both.example:22": {ssh.KeyAlgoECDSA256, ssh.KeyAlgoED25519},
		"rsa.example:22":  {ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256, ssh.KeyAlgoRSA},
	} {
		if got := hostKeyAlgorithms(isKnown, address); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", address, got, want)
		}
	}
}

func TestFindKey(t *testing.T) {
	_, _, private := newKeys(t)
	plain, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	locked, err := ssh.MarshalPrivateKeyWithPassphrase(private, "", []byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	if _, _, err := findKey(home, ""); err == nil || !benchtest.ContainsAll(err.Error(), "there is no key", "id_ed25519", "name one as identity") {
		t.Errorf("without a key: %v", err)
	}
	benchtest.Write(t, filepath.Join(home, ".ssh/id_rsa"), string(pem.EncodeToMemory(plain)))
	if key, path, err := findKey(home, ""); err != nil || key == nil || filepath.Base(path) != "id_rsa" {
		t.Errorf("the only key: %s, %v", path, err)
	}
	benchtest.Write(t, filepath.Join(home, ".ssh/id_ed25519"), string(pem.EncodeToMemory(locked)))
	if _, _, err := findKey(home, ""); err == nil || !benchtest.ContainsAll(err.Error(), "id_ed25519", "without a passphrase") {
		t.Errorf("a key with a passphrase: %v", err)
	}
	if _, path, err := findKey(home, filepath.Join(home, ".ssh/id_rsa")); err != nil || filepath.Base(path) != "id_rsa" {
		t.Errorf("a named key: %s, %v", path, err)
	}
	if _, _, err := findKey(home, filepath.Join(home, "none")); err == nil || !benchtest.ContainsAll(err.Error(), filepath.Join(home, "none"), "no such file") {
		t.Errorf("a named key that is not there: %v", err)
	}
}

// Each failed login is one line that names the fix.
func TestExplainLogin(t *testing.T) {
	ed, ec, _ := newKeys(t)
	known := filepath.Join(t.TempDir(), "known_hosts")
	benchtest.Write(t, known, "# mine\n"+knownhosts.Line([]string{"192.0.2.1"}, ed.PublicKey())+"\n")
	isKnown, err := knownhosts.New(known)
	if err != nil {
		t.Fatal(err)
	}
	other := errors.New("reach ssh://192.0.2.1: connection refused")
	for _, tt := range []struct {
		name string
		err  error
		want []string
	}{
		{"unknown", isKnown("192.0.2.2:22", &net.TCPAddr{}, ec.PublicKey()), []string{"is not in " + known, "once by ssh"}},
		{"another", isKnown("192.0.2.1:22", &net.TCPAddr{}, ec.PublicKey()), []string{"differs from the one in " + known + ", line 2"}},
		{"refused", errors.New("ssh: unable to authenticate, attempted methods [none publickey]"), []string{"refuses the key /k", "authorized_keys"}},
		{"down", other, []string{"connection refused"}},
	} {
		if tt.err == nil {
			t.Fatalf("%s: got no error", tt.name)
		}
		got := explainLogin(fmt.Errorf("log in: %w", tt.err), "ssh://192.0.2.1", known, "/k")
		if got == nil || !benchtest.ContainsAll(got.Error(), tt.want...) || strings.Contains(got.Error(), "\n") {
			t.Errorf("%s: got %v, want %q", tt.name, got, tt.want)
		}
	}
	if err := explainLogin(nil, "", "", ""); err != nil {
		t.Errorf("no error: %v", err)
	}
}

// A server listens on the address at which its host was logged in to, as the host sees it.
func TestListenAddress(t *testing.T) {
	for connection, want := range map[string]string{
		"192.0.2.7 50000 192.0.2.1 22":     "192.0.2.1",
		"2001:db8::7 50000 2001:db8::1 22": "2001:db8::1",
		"":                                 "",
		"192.0.2.7 50000":                  "",
		"a b c d":                          "",
	} {
		on := place.Within{Place: place.Local{}, Env: []string{"SSH_CONNECTION=" + connection}}
		if got := ListenAddress(t.Context(), on); got != want {
			t.Errorf("%q: got %q, want %q", connection, got, want)
		}
	}
	if got := ListenAddress(t.Context(), place.Within{Place: place.Local{}, Enter: []string{"false"}}); got != "" {
		t.Errorf("a host that does not answer: got %q", got)
	}
}
