package splitcontroller

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A certificate of the webhook is valid for a year, and replaced a third of it before its end.
const (
	validity  = 365 * 24 * time.Hour
	remaining = validity / 3
	interval  = time.Minute
)

// certificates keep the webhook's certificate in a Secret, which all processes share, and have the
// API server trust it. It is self-signed: only this one certificate is trusted, for this webhook.
type certificates struct {
	options Options
	client  client.Client // without a cache
	current atomic.Pointer[tls.Certificate]
	now     func() time.Time
}

var errNoCertificate = errors.New("the webhook has no certificate yet")

func (c *certificates) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if current := c.current.Load(); current != nil {
		return current, nil
	}
	return nil, errNoCertificate
}

// NeedLeaderElection lets every process admit pods.
func (c *certificates) NeedLeaderElection() bool { return false }

// Start keeps the certificate until ctx ends.
func (c *certificates) Start(ctx context.Context) error {
	last := ""
	for {
		wait := interval
		err := c.ensure(ctx)
		if err != nil {
			wait = interval / 30
		}
		if text := fmt.Sprint(err); ctx.Err() == nil && err != nil && text != last {
			c.options.Log.Error("keep the webhook's certificate; trying again", "error", err)
			last = text
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// ensure reads the certificate, or makes one, and serves it once the API server trusts it.
func (c *certificates) ensure(ctx context.Context) error {
	now := c.now()
	var s corev1.Secret
	err := c.client.Get(ctx, types.NamespacedName{Namespace: c.options.Namespace, Name: Secret}, &s)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read secret: %w", err)
	}
	pair, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey])
	if err != nil || pair.Leaf.NotAfter.Sub(now) < remaining || pair.Leaf.VerifyHostname(c.host()) != nil || c.lacksIP(pair.Leaf) {
		if pair, err = c.make(ctx, &s, pair.Leaf, now); err != nil {
			return fmt.Errorf("make certificate: %w", err)
		}
	}
	if err := c.trust(ctx, pair.Leaf, now); err != nil {
		return fmt.Errorf("have the API server trust the certificate: %w", err)
	}
	c.current.Store(&pair)
	return nil
}

func (c *certificates) host() string { return Name + "." + c.options.Namespace + ".svc" }

// lacksIP reports whether clients that call the webhook by the address of -host would refuse the certificate.
func (c *certificates) lacksIP(leaf *x509.Certificate) bool {
	return net.ParseIP(c.options.Host) != nil && leaf.VerifyHostname(c.options.Host) != nil
}

// make makes a certificate and keeps it, with the IP addresses of the old one (nil: none), which other processes may have. If another
// process is faster, it fails.
func (c *certificates) make(ctx context.Context, s *corev1.Secret, old *x509.Certificate, now time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: c.host()}, DNSNames: []string{c.host(), Name + "." + c.options.Namespace},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(validity),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	if old != nil {
		template.IPAddresses = old.IPAddresses
	}
	if c.lacksIP(template) {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(c.options.Host))
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return tls.Certificate{}, err
	}
	s.ObjectMeta = metav1.ObjectMeta{Namespace: c.options.Namespace, Name: Secret, ResourceVersion: s.ResourceVersion}
	s.Type = corev1.SecretTypeTLS
	s.Data = map[string][]byte{
		corev1.TLSCertKey:       encode("CERTIFICATE", der),
		corev1.TLSPrivateKeyKey: encode("PRIVATE KEY", private),
	}
	if s.ResourceVersion == "" {
		err = c.client.Create(ctx, s)
	} else {
		err = c.client.Update(ctx, s)
	}
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey])
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// trust adds the certificate to those of the webhook's configuration. Earlier ones of ours stay until
// they end, because other processes may serve them for a minute.
func (c *certificates) trust(ctx context.Context, leaf *x509.Certificate, now time.Time) error {
	var w admissionregistrationv1.MutatingWebhookConfiguration
	if err := c.client.Get(ctx, types.NamespacedName{Name: Name}, &w); err != nil {
		return err
	}
	was := w.DeepCopy()
	for i := range w.Webhooks {
		w.Webhooks[i].ClientConfig.CABundle = bundle(w.Webhooks[i].ClientConfig.CABundle, leaf, now)
	}
	return c.client.Patch(ctx, &w, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}))
}

// bundle returns the certificates that the API server should trust: the leaf, and earlier ones that
// are valid.
func bundle(trusted []byte, leaf *x509.Certificate, now time.Time) []byte {
	var kept []byte
	for block, rest := pem.Decode(trusted); block != nil; block, rest = pem.Decode(rest) {
		old, err := x509.ParseCertificate(block.Bytes)
		if err == nil && now.Before(old.NotAfter) && old.Subject.CommonName == leaf.Subject.CommonName && !old.Equal(leaf) {
			kept = append(kept, encode("CERTIFICATE", block.Bytes)...)
		}
	}
	return append(kept, encode("CERTIFICATE", leaf.Raw)...)
}
