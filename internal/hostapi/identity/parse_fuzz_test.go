package identity

import (
	"crypto/x509"
	"encoding/pem"
	"path/filepath"
	"testing"
)

// A certificate names a guest only by exactly one URI, and the name is one element of a path.
// No file is taken for an authority that cannot sign.
func FuzzParse(f *testing.F) {
	a, err := OpenAuthority(f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	guest, err := a.Issue("node1")
	if err != nil {
		f.Fatal(err)
	}
	key, err := encodeKey(a.key)
	if err != nil {
		f.Fatal(err)
	}
	block, _ := pem.Decode(guest.CertificatePEM)
	f.Add(block.Bytes)
	f.Add(a.cert.Raw)
	f.Add(append(a.CertificatePEM(), key...))
	f.Add(append(append([]byte{}, guest.CertificatePEM...), guest.KeyPEM...))
	f.Fuzz(func(t *testing.T, content []byte) {
		if c, err := x509.ParseCertificate(content); err == nil {
			name, err := nameOf(c)
			if err == nil && (len(c.URIs) != 1 || c.URIs[0].String() != "unnest://guest/"+name || filepath.Base(name) != name) {
				t.Errorf("URIs %v name the guest %q", c.URIs, name)
			}
		}
		if a, err := parseAuthority(content); err == nil {
			if _, err := a.Issue("node1"); err != nil {
				t.Errorf("authority cannot sign: %v", err)
			}
		}
	})
}

// Whatever a guest asks to be certified, it gets a certificate of its own name only, with which
// it can be nothing but a client.
func FuzzRenew(f *testing.F) {
	a, err := OpenAuthority(f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	guest, err := a.Issue("node1")
	if err != nil {
		f.Fatal(err)
	}
	block, _ := pem.Decode(guest.CertificatePEM)
	present, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		f.Fatal(err)
	}
	request, _, err := NewRequest()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(request)
	f.Add(block.Bytes)
	f.Fuzz(func(t *testing.T, request []byte) {
		c, err := a.Renew("node1", present, request)
		if err != nil {
			return
		}
		name, err := nameOf(c)
		if err != nil || name != "node1" || c.IsCA || len(c.ExtKeyUsage) != 1 || c.ExtKeyUsage[0] != x509.ExtKeyUsageClientAuth || len(c.DNSNames)+len(c.IPAddresses) > 0 {
			t.Errorf("certified %+v, %v", c, err)
		}
	})
}
