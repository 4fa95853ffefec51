package xen

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"

	"github.com/cavaliergopher/cpio"
)

//go:embed scripts/init
var initScript []byte

// archive is what the domain's initrd has beyond the one that all share: its first process, and its
// seed. The kernel unpacks both, one after the other.
func (d *Domain) archive() ([]byte, error) {
	seed, err := d.seed().Archive()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := cpio.NewWriter(&b)
	for _, f := range []struct {
		name    string
		mode    cpio.FileMode
		content []byte
	}{{"domain-init", 0o755, initScript}, {"seed.tar", 0o600, seed}} {
		err = errors.Join(err, w.WriteHeader(&cpio.Header{Name: f.name, Mode: cpio.TypeReg | f.mode, Size: int64(len(f.content)), Links: 1}))
		_, writeErr := w.Write(f.content)
		err = errors.Join(err, writeErr)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, fmt.Errorf("write initrd of domain %s: %w", d.Name, err)
	}
	return b.Bytes(), nil
}
