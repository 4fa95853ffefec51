package guest

import (
	"archive/tar"
	"bytes"
	"cmp"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
)

// Seed are the files of one guest: those that its first process unpacks over the root
// file system. They come from QEMU's firmware configuration device or a disk, and only
// root in the guest can read them.
type Seed struct {
	Hostname   string
	HostKey    ed25519.PrivateKey // the SSH server's
	Authorized ssh.PublicKey      // who may log in as root
	Interfaces []Interface
	Files      map[string]string // further files, mode 0600, by absolute path
}

// Interface is a NIC that the guest configures during the boot.
type Interface struct {
	MAC     string
	Name    string
	Address string // with prefix length
	Gateway string // of the default route; empty: none
}

// Archive returns the seed as the tar archive that the guest unpacks.
func (s Seed) Archive() ([]byte, error) {
	files := map[string]string{
		"/etc/hostname": s.Hostname + "\n",
		"/etc/hosts":    "127.0.0.1 localhost " + s.Hostname + "\n::1 localhost\n",
		"/etc/dropbear/dropbear_ed25519_host_key": dropbearKey(s.HostKey),
		"/root/.ssh/authorized_keys":              string(ssh.MarshalAuthorizedKey(s.Authorized)),
		"/etc/unnest/interfaces":                  s.interfaces(),
	}
	maps.Copy(files, s.Files)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	err := w.WriteHeader(&tar.Header{Name: "root/.ssh/", Typeflag: tar.TypeDir, Mode: 0o700})
	for _, path := range slices.Sorted(maps.Keys(files)) {
		h := &tar.Header{Name: strings.TrimPrefix(path, "/"), Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(len(files[path]))}
		err = errors.Join(err, w.WriteHeader(h))
		_, writeErr := io.WriteString(w, files[path])
		err = errors.Join(err, writeErr)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, fmt.Errorf("pack seed of guest %s: %w", s.Hostname, err)
	}
	return b.Bytes(), nil
}

// interfaces returns the table for the guest's boot script. A line has MAC, name,
// address, and gateway or "-".
func (s Seed) interfaces() string {
	var b strings.Builder
	for _, i := range s.Interfaces {
		fmt.Fprintln(&b, i.MAC, i.Name, i.Address, cmp.Or(i.Gateway, "-"))
	}
	return b.String()
}

// dropbearKey encodes an Ed25519 key in Dropbear's format: as SSH strings, the type of
// the key, and the 64 bytes of its private and public half.
func dropbearKey(key ed25519.PrivateKey) string {
	return string(ssh.Marshal(struct {
		Type string
		Key  []byte
	}{ssh.KeyAlgoED25519, key}))
}
