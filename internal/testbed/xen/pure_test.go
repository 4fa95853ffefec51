package xen

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cavaliergopher/cpio"
	"golang.org/x/crypto/ssh"
)

func TestParseFacts(t *testing.T) {
	f, err := parseFacts("4.17.6-pre\nxen-3.0-x86_64 hvm-3.0-x86_32 hvm-3.0-x86_32p hvm-3.0-x86_64\n")
	if err != nil || f.Version != "4.17.6-pre" || !slices.Equal(f.Kinds, []Kind{PV, PVH, HVM}) {
		t.Errorf("got %+v, %v", f, err)
	}
	f, err = parseFacts("4.11.4\nxen-3.0-x86_64 xen-3.0-x86_32p\n")
	if err != nil || !slices.Equal(f.Kinds, []Kind{PV}) {
		t.Errorf("a processor without virtualization: got %+v, %v", f, err)
	}
	for _, damaged := range []string{"", "\n", "4.17", "\nxen-3.0-x86_64"} {
		if f, err := parseFacts(damaged); err == nil {
			t.Errorf("%q: got %+v", damaged, f)
		}
	}
}

// The number of a domain is its address and its MAC: both are unique, and in the bridge's network.
func TestAddresses(t *testing.T) {
	seen := map[string]bool{gateway.String(): true}
	for i, a := range Addresses() {
		mac := Config{Number: i + 1}.mac()
		if !network.Contains(a) || seen[a.String()] || seen[mac] {
			t.Errorf("domain %d: address %v, MAC %s", i+1, a, mac)
		}
		seen[a.String()], seen[mac] = true, true
	}
	if broadcast := Addresses()[MaxDomains-1].Next(); network.Contains(broadcast.Next()) {
		t.Errorf("addresses after %v are free: raise MaxDomains", broadcast)
	}
}

func TestConfigText(t *testing.T) {
	for kind, want := range map[Kind][]string{
		PV:  {`type = "pv"`, "console=hvc0", "vdev=xvda,access=ro,script=/d/block,target=@root@", "vdev=xvdb,access=rw,script=/d/block,target=@disk@", "script=/d/vif", "cpu_weight = 512"},
		PVH: {`type = "pvh"`, "console=hvc0", "vdev=xvda,access=ro,", "memory = 512", "vcpus = 2"},
		HVM: {`type = "hvm"`, "console=ttyS0", "vdev=hda,access=ro,devtype=cdrom,backendtype=qdisk,target=@root@", "vdev=hdb,access=rw,backendtype=qdisk,target=@disk@", "type=ioemu,model=e1000", `hdtype = "ahci"`, `serial = "file:/d/a.console"`},
	} {
		text := Config{Name: "a", Kind: kind, Number: 2, VCPUs: 2, Memory: 512 << 20, Weight: 512}.text("unnest-run-a", "/boot/vmlinuz", "/d", false)
		for _, line := range append(want, `name = "unnest-run-a"`, `kernel = "/boot/vmlinuz"`, `ramdisk = "/d/a.initrd"`, "mac=00:16:3e:75:6e:02", `on_crash = "destroy"`) {
			if !strings.Contains(text, line) {
				t.Errorf("%s lacks %q:\n%s", kind, line, text)
			}
		}
	}
	for _, emulated := range []bool{false, true} {
		if text := (Config{Kind: PV}).text("n", "k", "i", emulated); strings.Contains(text, " norandmaps ") != emulated {
			t.Errorf("emulated processors %v:\n%s", emulated, text)
		}
	}
	if text := (Config{Kind: PV}).text("n", "k", "i", false); strings.Contains(text, "cpu_weight") || strings.Contains(text, "e1000") {
		t.Errorf("default weight, PV:\n%s", text)
	}
}

// The kernel unpacks the archive after the shared initrd. It has the first process and the seed.
func TestArchive(t *testing.T) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	d := &Domain{Config: Config{Name: "a", Number: 1}, Address: "10.0.0.1", host: &Host{Key: signer}, key: key}
	content, err := d.archive()
	if err != nil || len(content)%4 != 0 {
		t.Fatalf("%d bytes, %v; want a multiple of 4", len(content), err)
	}
	files := map[string]int64{}
	for r := cpio.NewReader(bytes.NewReader(content)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = h.Size
		if h.Name == "domain-init" && h.Mode.Perm()&0o100 == 0 {
			t.Error("domain-init is not executable")
		}
	}
	if files["domain-init"] != int64(len(initScript)) || files["seed.tar"] < 1024 {
		t.Errorf("got %v", files)
	}
}

func read(t testing.TB, name string) string {
	t.Helper()
	content, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestParseList(t *testing.T) {
	all, err := ParseList(read(t, "list"))
	if err != nil || len(all) != 3 {
		t.Fatalf("got %+v, %v", all, err)
	}
	if want := (Entry{"unnest-run-test-pv", 1, 512 << 20, 1, "-b----", 196400 * time.Millisecond}); all[1] != want {
		t.Errorf("got %+v, want %+v", all[1], want)
	}
	for state, alive := range map[string]bool{"r-----": true, "-b----": true, "--p---": true, "------": true, "---s--": false, "----c-": false, "-----d": false} {
		if (Entry{State: state}).alive() != alive {
			t.Errorf("%s: alive %v", state, !alive)
		}
	}
	for _, damaged := range []string{"", "Name ID\nDomain-0 0", "Name\nd x 512 1 r----- 1.0", "Name\nd 1 512 1 r----- soon", "Name\nd 1 -512 1 r----- 1.0", "Name\nd 1 17592186044416 1 r----- 1.0", "Name\nd 1 512 1 r----- -1.0", "not running"} {
		if all, err := ParseList(damaged); err == nil {
			t.Errorf("%q: got %+v", damaged, all)
		}
	}
}

// The capture has three tables, of a host on which one domain runs and one is being created.
func TestParseTop(t *testing.T) {
	whole := read(t, "xentop")
	samples, err := ParseTop(whole)
	if err != nil || len(samples) != 2 {
		t.Fatalf("got %+v, %v", samples, err)
	}
	if n := Tables(whole); n != 3 || Tables("") != 0 {
		t.Errorf("%d tables", n)
	}
	first := samples[0]
	if first.Percent["Domain-0"] != 119.8 || first.Percent["unnest-run-test-pv"] != 61.2 || first.Percent["unnest-run-test-pvh"] != 0 ||
		first.Seconds["Domain-0"] != 870 || samples[1].Percent["unnest-run-test-pv"] != 35.2 {
		t.Errorf("got %+v", samples)
	}
	// Killed at any time, xentop has printed a part: whole tables of it count.
	for n := range len(whole) {
		samples, err := ParseTop(whole[:n])
		if err != nil && len(samples) > 0 || err == nil && len(samples) > 2 {
			t.Fatalf("%d bytes: %+v, %v", n, samples, err)
		}
		for i, s := range samples {
			if len(s.Percent) != 3 {
				t.Fatalf("%d bytes: sample %d lacks a domain: %+v", n, i, s)
			}
		}
	}
	unlimited := strings.ReplaceAll(whole, "     786432      25.0     2", "   no limit       n/a     2")
	if again, err := ParseTop(unlimited); err != nil || again[0].Percent["Domain-0"] != 119.8 {
		t.Errorf("no limit: got %+v, %v", again, err)
	}
	for _, damaged := range []string{"", "xentop: not found\n", "NAME STATE\na b\nNAME STATE\n", strings.ReplaceAll(whole, "119.8", "much"), strings.ReplaceAll(whole, "119.8", "NaN"), strings.ReplaceAll(whole, "119.8", "-1.0")} {
		if samples, err := ParseTop(damaged); err == nil {
			t.Errorf("%q: got %+v", damaged, samples)
		}
	}
}

func FuzzParseTop(f *testing.F) {
	f.Add(read(f, "xentop"))
	f.Add(" NAME STATE CPU(sec) CPU(%)\n Domain-0 -----r 868 0.0\n NAME STATE CPU(sec) CPU(%)\n Domain-0 -----r 869 99.9\n")
	f.Fuzz(func(t *testing.T, printed string) {
		samples, err := ParseTop(printed)
		if err == nil && len(samples) == 0 {
			t.Errorf("%q: neither sample nor error", printed)
		}
		for _, s := range samples {
			for name, percent := range s.Percent {
				if seconds := s.Seconds[name]; !(percent >= 0) || !(seconds >= 0) || math.IsInf(percent+seconds, 0) {
					t.Errorf("%q: domain %q has %v %%, %v s", printed, name, percent, seconds)
				}
			}
		}
	})
}

func TestFullNames(t *testing.T) {
	h := Host{Dir: "/var/tmp/unnest-run-test"}
	if name, own := h.Own("unnest-run-test-pv"); !own || name != "pv" {
		t.Errorf("got %q, %v", name, own)
	}
	for _, other := range []string{"Domain-0", "unnest-run-test2-pv", "unnest-run-tes"} {
		if name, own := h.Own(other); own {
			t.Errorf("%s is %q", other, name)
		}
	}
}

func FuzzParseList(f *testing.F) {
	f.Add(read(f, "list"))
	f.Add("Name ID Mem VCPUs State Time(s)\nd 1 512 1 r----- 1e30\n")
	f.Add("Name ID Mem VCPUs State Time(s)\nd -1 9223372036854775807 -1 r----- -1\n")
	f.Fuzz(func(t *testing.T, printed string) {
		all, err := ParseList(printed)
		for _, e := range all {
			if err == nil && (e.Name == "" || e.ID < 0 || e.Memory < 0 || e.VCPUs < 0 || e.Time < 0) {
				t.Errorf("%q: got %+v", printed, e)
			}
		}
	})
}

func FuzzParseFacts(f *testing.F) {
	f.Add("4.17.7\nxen-3.0-x86_64 hvm-3.0-x86_32 hvm-3.0-x86_32p hvm-3.0-x86_64 \n")
	f.Add("\n\n")
	f.Fuzz(func(t *testing.T, printed string) {
		if facts, err := parseFacts(printed); err == nil && facts.Version == "" {
			t.Errorf("%q: got %+v", printed, facts)
		}
	})
}

func TestReasonOf(t *testing.T) {
	const log = "(XEN) Freed 656kB init memory\n(XEN) d12v0 Triple fault - invoking HVM shutdown action 1\n(XEN) d1v0 began\n(XEN) d1v1 Triple fault - invoking HVM shutdown action 1\n(XEN) CPU:    0\n"
	for id, want := range map[string]string{"1": "; Xen says: d1v1 Triple fault - invoking HVM shutdown action 1", "2": "", "12": "; Xen says: d12v0 Triple fault - invoking HVM shutdown action 1"} {
		if got := reasonOf(id, log); got != want {
			t.Errorf("domain %s: %q, want %q", id, got, want)
		}
	}
}
