// Package medium is the format of the medium on which the host daemon hands a guest its
// credentials: a tar archive in whole sectors of a CD-ROM.
//
// How a medium gets into the guest's drive belongs to the VMM, and what the guest does with
// the credentials to the guest.
package medium

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
)

// Content is what a medium has.
type Content struct {
	CA, Certificate, Key []byte         // PEM
	Server               netip.AddrPort // the daemon's address, as the guest sees it
}

// MaxSize bounds a medium, in bytes.
const MaxSize = 64 << 10

const (
	sector  = 2048 // of a CD-ROM, in bytes
	maxFile = 16 << 10
	// version is the content of the first file, whose name says what the medium is.
	version     = "1\n"
	versionName = "unnest-credentials"
)

// ErrForeign is wrapped when a medium is not one of this package, or of a later version.
var ErrForeign = errors.New("the medium has no credentials")

// file is one of the files that follow the first, in their order.
type file struct {
	name    string
	content *[]byte
}

func (c *Content) files(server *[]byte) []file {
	return []file{{"ca.crt", &c.CA}, {"client.crt", &c.Certificate}, {"client.key", &c.Key}, {"server", server}}
}

// Encode returns a medium.
func Encode(c Content) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	first, server := []byte(version), []byte(c.Server.String())
	for _, f := range append([]file{{versionName, &first}}, c.files(&server)...) {
		if len(*f.content) == 0 || len(*f.content) > maxFile {
			return nil, fmt.Errorf("make medium: %s has %d bytes: want 1 to %d", f.name, len(*f.content), maxFile)
		}
		err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: 0o600, Size: int64(len(*f.content))})
		if err == nil {
			_, err = w.Write(*f.content)
		}
		if err != nil {
			return nil, fmt.Errorf("make medium: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("make medium: %w", err)
	}
	b.Write(make([]byte, -b.Len()&(sector-1)))
	if b.Len() > MaxSize {
		return nil, fmt.Errorf("make medium: it has %d bytes: want at most %d", b.Len(), MaxSize)
	}
	return b.Bytes(), nil
}

// Decode returns the content of a medium. It reads MaxSize bytes at most. The files are the
// caller's to check.
func Decode(r io.Reader) (c Content, err error) {
	t := tar.NewReader(io.LimitReader(r, MaxSize))
	h, err := t.Next()
	switch {
	case err != nil && !isFormat(err):
		return Content{}, fmt.Errorf("read medium: %w", err)
	case err != nil || h.Name != versionName:
		return Content{}, ErrForeign
	}
	if first, err := read(t, h); err != nil || string(first) != version {
		return Content{}, errors.Join(fmt.Errorf("%w that this version reads: update unnest-cni", ErrForeign), err)
	}
	var server []byte
	for _, f := range c.files(&server) {
		if h, err = t.Next(); err == nil && h.Name != f.name {
			err = fmt.Errorf("file %.40q: want %s", h.Name, f.name)
		}
		if err == nil {
			*f.content, err = read(t, h)
		}
		if err != nil {
			return Content{}, fmt.Errorf("read medium: %s: %w", f.name, err)
		}
	}
	if c.Server, err = netip.ParseAddrPort(string(server)); err != nil {
		return Content{}, fmt.Errorf("read medium: server %.60q: want ADDRESS:PORT", server)
	}
	return c, nil
}

// isFormat reports whether an error says that a medium is not an archive.
func isFormat(err error) bool {
	return errors.Is(err, tar.ErrHeader) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

func read(t *tar.Reader, h *tar.Header) ([]byte, error) {
	if h.Typeflag != tar.TypeReg || h.Size < 1 || h.Size > maxFile {
		return nil, fmt.Errorf("it is of type %q with %d bytes: want a file of 1 to %d", h.Typeflag, h.Size, maxFile)
	}
	return io.ReadAll(t)
}
