package identity

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// ServerConfig returns the daemon's TLS configuration: TLS 1.3 only, with a new
// certificate for the IP address that it listens on. Peers need a client certificate of
// this authority. No session is resumed, so that the validity of the certificate is
// checked for each connection.
func (a *Authority) ServerConfig(listen net.IP) (*tls.Config, error) {
	c, err := a.issueServer(listen)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(c.CertificatePEM, c.KeyPEM)
	if err != nil {
		return nil, fmt.Errorf("load the daemon's certificate: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{pair},
		ClientAuth:             tls.RequireAndVerifyClientCert,
		ClientCAs:              roots,
		SessionTicketsDisabled: true,
	}, nil
}

// Names of the files in a guest's credentials directory.
const (
	CAFile          = "ca.crt"
	CertificateFile = "client.crt"
	KeyFile         = "client.key" // mode 0600
)

// ClientConfig returns the guest's TLS configuration, from the files ca.crt, client.crt
// and client.key in dir. The dialler sets the server's name, which has to be the daemon's
// IP address. ClientConfig refuses a key that others than its owner may read.
func ClientConfig(dir string) (*tls.Config, error) {
	keyPath := filepath.Join(dir, KeyFile)
	info, err := os.Stat(keyPath)
	if err != nil {
		return nil, fmt.Errorf("read credentials: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("read credentials: %s has mode %04o: chmod 0600 it", keyPath, info.Mode().Perm())
	}
	pair, err := loadPair(dir)
	if err != nil {
		return nil, fmt.Errorf("read credentials in %s: %w", dir, err)
	}
	ca, err := os.ReadFile(filepath.Join(dir, CAFile))
	if err != nil {
		return nil, fmt.Errorf("read credentials: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("read credentials: %s has no certificate", filepath.Join(dir, CAFile))
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, RootCAs: roots}, nil
}
