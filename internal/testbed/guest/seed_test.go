package guest

import (
	"archive/tar"
	"bytes"
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"
)

// unpack returns the contents of the archive by name, and all headers.
func unpack(t *testing.T, archive []byte) (map[string]string, []*tar.Header) {
	t.Helper()
	files, headers := map[string]string{}, []*tar.Header{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, headers
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		headers = append(headers, h)
		if h.Typeflag == tar.TypeReg {
			files[h.Name] = string(content)
		}
	}
}

func TestSeedArchive(t *testing.T) {
	hostKey, _ := testKey(t)
	_, login := testKey(t)
	archive, err := Seed{
		Hostname: "node1", HostKey: hostKey, Authorized: login.PublicKey(),
		Interfaces: []Interface{
			{MAC: "52:54:00:c8:00:01", Name: "mgmt", Address: "10.200.0.2/24"},
			{MAC: "52:54:00:c9:00:01", Name: "eth0", Address: "10.201.0.2/16", Gateway: "10.201.0.1"},
		},
		Files: map[string]string{"/etc/unnest/client.key": "secret\n", "/etc/hosts": "127.0.0.1 mine\n"},
	}.Archive()
	if err != nil {
		t.Fatal(err)
	}
	files, headers := unpack(t, archive)
	want := map[string]string{
		"etc/hostname":                           "node1\n",
		"etc/hosts":                              "127.0.0.1 mine\n", // the caller's own file wins
		"etc/unnest/client.key":                  "secret\n",
		"etc/unnest/interfaces":                  "52:54:00:c8:00:01 mgmt 10.200.0.2/24 -\n52:54:00:c9:00:01 eth0 10.201.0.2/16 10.201.0.1\n",
		"root/.ssh/authorized_keys":              string(ssh.MarshalAuthorizedKey(login.PublicKey())),
		"etc/dropbear/dropbear_ed25519_host_key": dropbearKey(hostKey),
	}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	for _, h := range headers {
		mode := int64(0o600)
		if h.Typeflag == tar.TypeDir {
			mode = 0o700
		}
		if h.Mode != mode || h.Uid != 0 || h.Gid != 0 {
			t.Errorf("%s: mode %o, owner %d:%d; nobody but root may read it", h.Name, h.Mode, h.Uid, h.Gid)
		}
	}
}

// The seed of the same guest is always the same archive.
func TestSeedArchiveIsReproducible(t *testing.T) {
	hostKey, login := testKey(t)
	s := Seed{Hostname: "node1", HostKey: hostKey, Authorized: login.PublicKey(), Files: map[string]string{"/a": "1", "/b": "2", "/c": "3"}}
	first, err := s.Archive()
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.Archive()
	if err != nil || !bytes.Equal(first, second) {
		t.Errorf("two archives of one seed differ (%v)", err)
	}
}

// Dropbear's format of an Ed25519 key is two SSH strings: a length of four bytes, most
// significant first, then that many bytes.
func TestDropbearKey(t *testing.T) {
	key, signer := testKey(t)
	rest := []byte(dropbearKey(key))
	var fields [][]byte
	for len(rest) > 0 {
		if len(rest) < 4 || len(rest)-4 < int(binary.BigEndian.Uint32(rest)) {
			t.Fatalf("%d bytes are left after %d fields", len(rest), len(fields))
		}
		n := binary.BigEndian.Uint32(rest)
		fields = append(fields, rest[4:4+n])
		rest = rest[4+n:]
	}
	if len(fields) != 2 || string(fields[0]) != "ssh-ed25519" || len(fields[1]) != ed25519.PrivateKeySize {
		t.Fatalf("got %q; want the key's type and its 64 bytes", fields)
	}
	public, err := ssh.NewPublicKey(ed25519.PrivateKey(fields[1]).Public())
	if err != nil || !bytes.Equal(public.Marshal(), signer.PublicKey().Marshal()) {
		t.Errorf("the public half is not the key's (%v)", err)
	}
}
