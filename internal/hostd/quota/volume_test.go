package quota

import (
	"errors"
	"strings"
	"testing"
)

func TestVolumes(t *testing.T) {
	p, err := Parse("hostd.yaml", []byte(`
tenants:
  - {name: a, bridge: br0, volumes: /srv/pods/a, limits: {volumes: 2, volumeDirectories: 3, sharedMemory: 1}}
  - {name: b, bridge: br1, volumes: /srv/pods/ab, volumesUnbounded: true}
  - {name: c, bridge: br2}
guests:
  - {name: g, tenant: a, index: 1, qmp: /run/g.qmp, export: /srv/unnest-export/g}
`))
	if err != nil {
		t.Fatal(err)
	}
	a, c := p.Tenants[0], p.Tenants[2]
	if dir, err := a.VolumesIn(); dir != "/srv/pods/a" || err != nil {
		t.Errorf("volumes of a are in %q, %v", dir, err)
	}
	if dir, err := c.VolumesIn(); !errors.Is(err, ErrNoVolumes) {
		t.Errorf("volumes of c are in %q, %v", dir, err)
	}
	if a.VolumesUnbounded || !p.Tenants[1].VolumesUnbounded {
		t.Error("volumes are unbounded for a, or bounded for b")
	}
	if p.Guests[0].Export != "/srv/unnest-export/g" {
		t.Errorf("export is %q", p.Guests[0].Export)
	}
	if err := a.AdmitVolume(1); err != nil {
		t.Error(err)
	}
	if err := a.AdmitVolume(2); !errors.Is(err, ErrLimit) {
		t.Errorf("a third volume: got %v", err)
	}
	if err := a.AdmitVolumeDirectory(2); err != nil {
		t.Error(err)
	}
	const want = "limit reached: the guest has made 3 volumes that still exist, of at most 3: " +
		"remove volumes on the host, or raise the limit volumeDirectories in the configuration"
	if err := a.AdmitVolumeDirectory(3); !errors.Is(err, ErrLimit) || err.Error() != want {
		t.Errorf("a fourth directory: got %v, want %s", err, want)
	}
	for _, tt := range []struct {
		shared, size int64
		want         error
	}{{0, 1 << 20, nil}, {1 << 19, 1 << 19, nil}, {1 << 19, 1<<19 + 1, ErrLimit}, {1 << 20, 1, ErrLimit}, {1, 1<<63 - 1, ErrLimit}} {
		if err := a.AdmitMemory(tt.shared, tt.size); !errors.Is(err, tt.want) {
			t.Errorf("%d bytes in addition to %d: got %v, want %v", tt.size, tt.shared, err, tt.want)
		}
	}
	unlimited := Tenant{}
	if err := errors.Join(unlimited.AdmitVolume(1000), unlimited.AdmitVolumeDirectory(1000), unlimited.AdmitMemory(1<<40, 1<<40)); err != nil {
		t.Error(err)
	}
}

func TestVolumesRefused(t *testing.T) {
	const head = "tenants:\n  - {name: a, bridge: br0, volumes: /srv/pods}\n"
	for text, want := range map[string]string{
		head + "  - {name: b, bridge: br1, volumes: /srv/pods}":                                                                     "overlap",
		head + "  - {name: b, bridge: br1, volumes: /srv/pods/b}":                                                                   "overlap",
		head + "  - {name: b, bridge: br1, volumes: /srv}":                                                                          "overlap",
		"tenants: [{name: a, bridge: br0, volumes: srv}]":                                                                           "absolute path",
		"tenants: [{name: a, bridge: br0, volumes: /srv/../etc}]":                                                                   "without",
		"tenants: [{name: a, bridge: br0, volumes: /srv/}]":                                                                         "without",
		"tenants: [{name: a, bridge: br0, volumes: /}]":                                                                             "without",
		`tenants: [{name: a, bridge: br0, volumes: "/srv,allow_root"}]`:                                                             "a comma",
		"tenants: [{name: a, bridge: br0, limits: {volumes: -1}}]":                                                                  "volumes",
		head + "guests: [{name: g, tenant: a, index: 1, qmp: /q, export: relative/path}]":                                           "absolute path",
		head + "guests: [{name: g, tenant: a, index: 1, qmp: /q, export: /srv/pods/g}]":                                             "overlap",
		head + "guests: [{name: g, tenant: a, index: 1, qmp: /q, export: /srv}]":                                                    "overlap",
		head + "guests: [{name: g, tenant: a, index: 1, qmp: /q, export: /x}, {name: h, tenant: a, index: 2, qmp: /r, export: /x}]": "overlap",
		"tenants: [{name: a, bridge: br0, volumesUnbounded: maybe}]":                                                                "volumesUnbounded",
	} {
		if _, err := Parse("hostd.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}
