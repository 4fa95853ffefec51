package medium

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func content() Content {
	return Content{
		CA: []byte("ca\n"), Certificate: bytes.Repeat([]byte("c"), 1500), Key: []byte("key\n"),
		Server: netip.MustParseAddrPort("[fd00:c9::1]:7443"),
	}
}

var addresses = cmpopts.EquateComparable(netip.AddrPort{})

// archive returns an archive of files in pairs of name and content.
func archive(t testing.TB, h tar.Header, pairs ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(pairs); i += 2 {
		one := h
		one.Name, one.Size = pairs[i], int64(len(pairs[i+1]))
		err := w.WriteHeader(&one)
		if err == nil {
			_, err = io.WriteString(w, pairs[i+1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestRoundTrip(t *testing.T) {
	b, err := Encode(content())
	if err != nil {
		t.Fatal(err)
	}
	if len(b)%sector != 0 || len(b) > MaxSize {
		t.Errorf("the medium has %d bytes", len(b))
	}
	drive := io.MultiReader(iotest.HalfReader(bytes.NewReader(b)), strings.NewReader(strings.Repeat("\x00", sector)))
	got, err := Decode(drive)
	if diff := cmp.Diff(content(), got, addresses); err != nil || diff != "" {
		t.Errorf("error %v, differs: %s", err, diff)
	}
}

// The format stays: the guest's program may be older or newer than the daemon.
func TestGolden(t *testing.T) {
	pairs := []string{
		"unnest-credentials", "1\n", "ca.crt", "ca\n", "client.crt", strings.Repeat("c", 1500), "client.key", "key\n", "server", "[fd00:c9::1]:7443",
	}
	want := archive(t, tar.Header{Typeflag: tar.TypeReg, Mode: 0o600}, pairs...)
	got, err := Encode(content())
	if err != nil || !bytes.HasPrefix(got, want) || len(bytes.Trim(got[len(want):], "\x00")) > 0 {
		t.Errorf("got %d bytes, error %v; want %d and zeros", len(got), err, len(want))
	}
}

func TestEncodeRefuses(t *testing.T) {
	for name, change := range map[string]func(*Content){
		"no key":  func(c *Content) { c.Key = nil },
		"huge CA": func(c *Content) { c.CA = make([]byte, maxFile+1) },
		"too large": func(c *Content) {
			c.CA, c.Certificate, c.Key = make([]byte, maxFile), make([]byte, maxFile), make([]byte, 1<<20)
		},
	} {
		c := content()
		change(&c)
		if _, err := Encode(c); err == nil {
			t.Errorf("%s: there was no error", name)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	file := tar.Header{Typeflag: tar.TypeReg}
	whole, err := Encode(content())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		medium  []byte
		foreign bool
		want    string
	}{
		"nothing":         {nil, true, "no credentials"},
		"another medium":  {bytes.Repeat([]byte("CD001"), 4096), true, "no credentials"},
		"another archive": {archive(t, file, "meta-data", "x"), true, "no credentials"},
		"later version":   {archive(t, file, versionName, "2\n"), true, "update unnest-cni"},
		"cut":             {whole[:3072], false, "client.crt"},
		"another order":   {archive(t, file, versionName, version, "client.key", "x"), false, "want ca.crt"},
		"a link":          {archive(t, tar.Header{Typeflag: tar.TypeSymlink, Linkname: "/etc/shadow"}, versionName, ""), true, "of type"},
		"empty file":      {archive(t, file, versionName, version, "ca.crt", ""), false, "0 bytes"},
		"no server":       {archive(t, file, versionName, version, "ca.crt", "x", "client.crt", "x", "client.key", "x", "server", "x"), false, "want ADDRESS:PORT"},
	} {
		_, err := Decode(bytes.NewReader(c.medium))
		if err == nil || errors.Is(err, ErrForeign) != c.foreign || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	broken := errors.New("I/O error")
	if _, err := Decode(iotest.ErrReader(broken)); !errors.Is(err, broken) || errors.Is(err, ErrForeign) {
		t.Errorf("broken drive: got %v", err)
	}
}

// Whatever is in the drive, Decode returns what Encode accepts, or an error.
func FuzzDecode(f *testing.F) {
	whole, err := Encode(content())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:2048])
	f.Add(archive(f, tar.Header{Typeflag: tar.TypeReg}, versionName, version, "ca.crt", "x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Decode(bytes.NewReader(b))
		if err != nil {
			return
		}
		again, err := Encode(c)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Decode(bytes.NewReader(again)); err != nil || !cmp.Equal(c, got, addresses) {
			t.Errorf("error %v, got %v, want %v", err, got, c)
		}
	})
}
