package identity

import (
	"os"
	"path/filepath"
	"testing"
)

func filesOf(t *testing.T, a *Authority, guest string) Files {
	t.Helper()
	c, err := a.Issue(guest)
	if err != nil {
		t.Fatal(err)
	}
	return Files{CA: a.CertificatePEM(), Certificate: c.CertificatePEM, Key: c.KeyPEM}
}

// Credentials are installed in a directory that does not exist, over those of another guest,
// and over what an interrupted Install has left.
func TestInstall(t *testing.T) {
	a, other := open(t, t.TempDir()), open(t, t.TempDir())
	dir := filepath.Join(t.TempDir(), "etc", "unnest")
	for _, f := range []Files{filesOf(t, a, "node1"), filesOf(t, a, "node2"), filesOf(t, other, "node1")} {
		if same, _ := f.SameGuest(dir); same {
			t.Error("the credentials of another guest are taken for its own")
		}
		if err := os.MkdirAll(filepath.Join(dir), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, KeyFile+nextSuffix), []byte("left"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := f.Install(dir); err != nil {
			t.Fatal(err)
		}
		if same, err := f.SameGuest(dir); !same || err != nil {
			t.Errorf("installed credentials: same %v, error %v", same, err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 3 {
			t.Errorf("directory has %v, error %v", entries, err)
		}
		for _, e := range entries {
			if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s has mode %v, error %v", e.Name(), info.Mode(), err)
			}
		}
	}
}

// What does not fit together is refused, and the present credentials stay.
func TestInstallRefuses(t *testing.T) {
	a, other := open(t, t.TempDir()), open(t, t.TempDir())
	good, foreign := filesOf(t, a, "node1"), filesOf(t, other, "node1")
	policyClient, err := a.IssuePolicy("default")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := good.Install(dir); err != nil {
		t.Fatal(err)
	}
	was := presented(t, dir)
	for name, f := range map[string]Files{
		"nothing":                 {},
		"no CA":                   {Certificate: good.Certificate, Key: good.Key},
		"another key":             {CA: good.CA, Certificate: good.Certificate, Key: foreign.Key},
		"another authority":       {CA: foreign.CA, Certificate: good.Certificate, Key: good.Key},
		"that of a policy client": {CA: good.CA, Certificate: policyClient.CertificatePEM, Key: policyClient.KeyPEM},
	} {
		if err := f.Install(dir); err == nil || presented(t, dir) != was {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if err := good.Install(filepath.Join(dir, CAFile)); err == nil {
		t.Error("a directory that is a file: there was no error")
	}
	if err := os.Mkdir(filepath.Join(dir, CertificateFile+nextSuffix), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, CertificateFile+nextSuffix, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := good.Install(dir); err == nil || presented(t, dir) != was {
		t.Errorf("a file that cannot be written: error %v", err)
	}
}
