package bundle

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"unnest.io/unnest/internal/cni/netconf"
	"unnest.io/unnest/internal/hostapi/identity"
)

func content(t *testing.T, file string) (names []string, texts map[string]string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	texts = map[string]string{}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names, texts
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, fmt.Sprintf("%s %o", h.Name, h.Mode))
		texts[h.Name] = string(text)
	}
}

// The archive has what docs/brfusion.md says, and the plugin accepts the configuration.
func TestCreate(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{identity.CAFile, identity.CertificateFile, identity.KeyFile, "unnest-cni"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b := Bundle{Credentials: dir, Server: netip.MustParseAddrPort("[fd00::1]:7443"), Plugin: filepath.Join(dir, "unnest-cni"), PluginDir: "/usr/lib/cni/"}
	file := filepath.Join(dir, "node1.tar")
	if err := b.Create(file); err != nil {
		t.Fatal(err)
	}
	names, texts := content(t, file)
	want := []string{
		"etc/unnest/ 700", "etc/unnest/ca.crt 600", "etc/unnest/client.crt 600", "etc/unnest/client.key 600",
		"etc/cni/net.d/10-pods.conflist 644", "usr/lib/cni/brfusion 755",
	}
	if !slices.Equal(names, want) || texts["etc/unnest/client.key"] != "client.key" || texts["usr/lib/cni/brfusion"] != "unnest-cni" {
		t.Errorf("got %q, want %q", names, want)
	}
	var list struct {
		CNIVersion, Name string
		Plugins          []map[string]any
	}
	if err := json.Unmarshal([]byte(texts[networkFile]), &list); err != nil || len(list.Plugins) != 2 {
		t.Fatalf("%v: %s", err, texts[networkFile])
	}
	own := list.Plugins[0] // as a runtime passes it
	own["cniVersion"], own["name"] = list.CNIVersion, list.Name
	stdin, err := json.Marshal(own)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := netconf.ParseBrFusion(stdin); err != nil || c.Server != b.Server || c.IPAM.Type != "hostd" {
		t.Errorf("the plugin reads %+v, %v", c, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := b.Create(file); !errors.Is(err, os.ErrExist) {
		t.Errorf("the file exists: got %v", err)
	}
	b.Credentials = ""
	if err := b.Create(file + "1"); err != nil {
		t.Fatal(err)
	}
	if names, _ := content(t, file+"1"); !slices.Equal(names, want[4:]) {
		t.Errorf("without credentials: got %q, want %q", names, want[4:])
	}
	b.Credentials = "/nowhere"
	if err := b.Create(file + "2"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no credentials: got %v", err)
	}
	if _, err := os.Stat(file + "2"); err == nil {
		t.Error("a file is left")
	}
}
