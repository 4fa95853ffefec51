package image

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

func mustDigest(t *testing.T, r Recipe, programs map[string][]byte) string {
	t.Helper()
	d, err := r.Digest(programs)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// An image is made again when any part of it changes, its Debian only when that
// changes.
func TestDigests(t *testing.T) {
	programs := func() map[string][]byte {
		return map[string][]byte{"/usr/bin/a": []byte("one"), "/usr/bin/b": []byte("two")}
	}
	tests := []struct {
		name          string
		change        func(*Recipe, map[string][]byte)
		image, debian bool // whether the digest changes
	}{
		{"nothing", func(*Recipe, map[string][]byte) {}, false, false},
		{"program's content", func(_ *Recipe, p map[string][]byte) { p["/usr/bin/a"] = []byte("One") }, true, false},
		{"program more", func(_ *Recipe, p map[string][]byte) { p["/usr/bin/c"] = nil }, true, false},
		{"program elsewhere", func(_ *Recipe, p map[string][]byte) {
			p["/bin/a"] = p["/usr/bin/a"]
			delete(p, "/usr/bin/a")
		}, true, false},
		{"contents swapped", func(_ *Recipe, p map[string][]byte) {
			p["/usr/bin/a"], p["/usr/bin/b"] = p["/usr/bin/b"], p["/usr/bin/a"]
		}, true, false},
		{"module", func(r *Recipe, _ map[string][]byte) { r.Modules = append(r.Modules, "dummy") }, true, false},
		{"program of the container image", func(r *Recipe, _ map[string][]byte) { r.Image = r.Image[1:] }, true, false},
		{"package", func(r *Recipe, _ map[string][]byte) { r.Packages = append(r.Packages, "nginx") }, true, true},
		{"architecture", func(r *Recipe, _ map[string][]byte) { r.Arch = S390X }, true, true},
		{"emulated hardware", func(r *Recipe, _ map[string][]byte) { *r = r.Emulated() }, true, true},
		{"whole root in containers", func(r *Recipe, _ map[string][]byte) { r.Whole = true }, true, false},
		{"release", func(r *Recipe, _ map[string][]byte) { r.Suite = "trixie" }, true, true},
		{"what is left out", func(r *Recipe, _ map[string][]byte) { r.Excluded = r.Excluded[1:] }, true, true},
		{"package moved to what is left out", func(r *Recipe, _ map[string][]byte) {
			last := len(r.Packages) - 1
			r.Excluded = slices.Insert(r.Excluded, 0, r.Packages[last])
			r.Packages = r.Packages[:last]
		}, true, true},
	}
	image, root := mustDigest(t, DefaultRecipe(), programs()), DefaultRecipe().rootDigest()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, p := DefaultRecipe(), programs()
			tt.change(&r, p)
			if changed := mustDigest(t, r, p) != image; changed != tt.image {
				t.Errorf("digest of the image changed: %v, want %v", changed, tt.image)
			}
			if changed := r.rootDigest() != root; changed != tt.debian {
				t.Errorf("digest of Debian's files changed: %v, want %v", changed, tt.debian)
			}
		})
	}
}

// Our own scripts are part of the image's digest, each with its path.
func TestDigestCoversScripts(t *testing.T) {
	files, err := overlayFiles()
	if err != nil {
		t.Fatal(err)
	}
	if entries, err := overlay.ReadDir("rootfs"); err != nil || len(entries) != len(files) {
		t.Errorf("%d files in rootfs, %d with a path in the image, %v", len(entries), len(files), err)
	}
	r := DefaultRecipe()
	if got, want := mustDigest(t, r, nil), digest(r, r.rootDigest(), files, map[string][]byte(nil), makeFileSystem); got != want {
		t.Fatalf("digest %s is not that of recipe, files, programs and file system: %s", got, want)
	}
	for path, content := range files {
		files[path] = append([]byte("#"), content...)
		if digest(r, r.rootDigest(), files, map[string][]byte(nil), makeFileSystem) == mustDigest(t, r, nil) {
			t.Errorf("a change of %s does not change the digest", path)
		}
		files[path] = content
	}
}

// The set of packages makes the image, not their order. Packages that every guest has
// make no difference.
func TestRecipes(t *testing.T) {
	base := DefaultRecipe()
	suite := SuiteRecipe([]string{"sysbench", "fio", "iperf3", "fio"})
	if want := slices.Concat(base.Packages, []string{"fio", "sysbench"}); !slices.Equal(suite.Packages, want) || !suite.Whole {
		t.Errorf("got %v, whole %v; want %v, whole", suite.Packages, suite.Whole, want)
	}
	if mustDigest(t, suite, nil) != mustDigest(t, SuiteRecipe([]string{"fio", "sysbench"}), nil) {
		t.Error("order and repetition change the digest")
	}
	servers := base.Containing("/usr/bin/memcached", "/usr/sbin/nginx")
	if servers.rootDigest() != base.rootDigest() || mustDigest(t, servers, nil) == mustDigest(t, base, nil) || len(base.Image)+2 != len(servers.Image) {
		t.Errorf("containers with servers: got %+v, want another image of the same Debian", servers)
	}
	if got := HypervisorRecipe(); !slices.Contains(got.Packages, "qemu-system-x86") || got.Whole {
		t.Errorf("got %v, whole %v; want QEMU, and containers with the tools only", got.Packages, got.Whole)
	}
	if again := DefaultRecipe(); !slices.Equal(again.Packages, base.Packages) || again.Whole {
		t.Errorf("the default recipe was changed: %+v", again)
	}
	for _, a := range Arches() {
		r, err := ArchRecipe(a)
		if err != nil || !slices.Contains(r.Packages, "linux-image-"+string(a)) || !slices.Contains(r.Modules, "virtio_net") {
			t.Errorf("%s: got %+v, %v", a, r, err)
		}
	}
	if r, err := ArchRecipe(""); err != nil || mustDigest(t, r, nil) != mustDigest(t, base, nil) {
		t.Errorf("no architecture: got %+v, %v; want the default", r, err)
	}
	if _, err := ArchRecipe("pdp11"); err == nil || !strings.Contains(err.Error(), `"pdp11"`) {
		t.Errorf("got %v", err)
	}
}

// Drivers of emulated hardware are kept, of their directories little else.
func TestEmulatedRecipe(t *testing.T) {
	r := DefaultRecipe().Emulated()
	kept := func(path string) bool {
		return !slices.ContainsFunc(r.Excluded, func(pattern string) bool {
			pattern = strings.ReplaceAll(strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*"), `\[!`, "[^")
			return regexp.MustCompile("^" + strings.ReplaceAll(pattern, `\]`, "]") + "$").MatchString("/lib/modules/6.1/kernel/drivers/" + path)
		})
	}
	for path, want := range map[string]bool{
		"ata/ahci.ko": true, "ata/libata.ko": true, "scsi/sd_mod.ko": true, "scsi/scsi_mod.ko": true, "net/ethernet/intel/e1000/e1000.ko": true,
		"scsi/megaraid/megaraid_sas.ko": false, "net/ethernet/broadcom/tg3.ko": false, "gpu/drm/drm.ko": false, "net/virtio_net.ko": true,
	} {
		if kept(path) != want {
			t.Errorf("%s is kept: %v, want %v", path, !want, want)
		}
	}
	if slices.Contains(DefaultRecipe().Modules, "e1000") || !slices.Contains(r.Modules, "e1000") {
		t.Errorf("modules %q", r.Modules)
	}
}
