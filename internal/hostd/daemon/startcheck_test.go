package daemon

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"unnest.io/unnest/internal/hostd/quota"
)

func TestWarnsOfConfiguration(t *testing.T) {
	for address, want := range map[string]int{"": 0, "127.0.0.1:9477": 0, "[::1]:9477": 0, "0.0.0.0:9477": 1, "[::]:9477": 1, "10.0.0.1:9477": 1} {
		d, log := testDaemon(t, t.TempDir())
		if address != "" {
			d.config.Quotas.HTTP = netip.MustParseAddrPort(address)
		}
		d.config.Quotas.Tenants[0].Bridge, d.config.Quotas.Tenants[1].Bridge = "lo", "nowhere0" // lo exists
		d.config.Quotas.Tenants[0].HostPorts = []quota.HostPort{quota.AnyPort}
		d.current.Store(&d.config.Quotas)
		d.warnOfConfiguration()
		if all := log.with("level=WARN", "hostPorts"); len(all) != 1 || !strings.Contains(all[0], "tenant=other") {
			t.Errorf("warnings of open ports are %q, want one of tenant other", all)
		}
		if got := len(log.with("level=WARN", "/metrics", "all tenants", address)); got != want {
			t.Errorf("http %q: %d warnings, want %d", address, got, want)
		}
		if got := len(log.with("level=WARN", "bridge=")); got != 1 || len(log.with("tenant=other", "bridge=nowhere0")) != 1 {
			t.Errorf("%d warnings of bridges, want one of nowhere0; log: %q", got, log.lines)
		}
	}
}

func TestWarnsOfStateDirectory(t *testing.T) {
	dir := t.TempDir()
	d, log := testDaemon(t, dir)
	d.warnOfConfiguration()
	if got := log.with("level=WARN", "state directory"); len(got) > 0 {
		t.Errorf("warnings of a private directory: %q", got)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	d.warnOfConfiguration()
	if got := log.with("level=WARN", "state directory", dir); len(got) != 1 {
		t.Errorf("warnings of a directory that all can write: %q, want one", got)
	}
}

func TestWarnsOfVolumes(t *testing.T) {
	d, log := testDaemon(t, t.TempDir())
	tenants := d.config.Quotas.Tenants
	tenants[0].Volumes, tenants[1].Volumes, tenants[1].VolumesUnbounded = t.TempDir(), t.TempDir(), true
	d.warnOfConfiguration()
	if got := log.with("level=WARN", "refuse volumes"); len(got) != 1 || !strings.Contains(got[0], "tenant=default") || !strings.Contains(got[0], "volumesUnbounded") {
		t.Errorf("warnings are %q, want one of tenant default", got)
	}
}

func TestStartWarns(t *testing.T) {
	dir := t.TempDir()
	log := &logLines{}
	startWith(t, dir, log.logger())
	if len(log.with("level=WARN", "bridge=br0")) != 1 {
		t.Errorf("no warning of the missing bridge br0; log: %q", log.lines)
	}
}
