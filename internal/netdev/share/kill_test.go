package share

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestMain runs a process that binds and unbinds until it is killed, if the test binary is
// called as one.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "bind" {
		fmt.Fprintln(os.Stderr, bindForever(Export{Dir: os.Args[2]}, os.Args[3]))
		os.Exit(1)
	}
	if len(os.Args) == 6 && os.Args[1] == "elsewhere" {
		_, _ = fmt.Fprintln(os.Stdout, bindElsewhere(Namespace(os.Args[2]), Export{Dir: os.Args[3]}, os.Args[4], os.Args[5]))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func bindForever(e Export, tenant string) error {
	for i := 0; ; i = (i + 1) % 8 {
		id := ID{Volume, "web", fmt.Sprintf("data%d", i)}
		if err := e.Prepare(); err != nil {
			return err
		}
		volume, err := OpenVolume(tenant, id, Digest{1}, anyone)
		if err != nil {
			return err
		}
		if _, err := e.Bind(id, volume.File); err != nil {
			return err
		}
		volume.Close()
		if i%2 == 0 {
			err = e.Unbind(id)
		} else if i == 7 {
			err = e.Close()
		}
		if err != nil {
			return err
		}
	}
}

// A process that is killed at any moment leaves nothing that the next one does not take
// over or remove.
func TestKilled(t *testing.T) {
	e, _ := newExport(t)
	tenant := tenantDirectory(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for range 40 {
		p := exec.Command(exe, "bind", e.Dir, tenant)
		var said strings.Builder
		p.Stderr = &said
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5*time.Millisecond + time.Duration(rand.Int64N(int64(20*time.Millisecond))))
		_ = p.Process.Kill()
		if err := p.Wait(); err == nil || said.Len() > 0 {
			t.Fatalf("before it was killed: %v: %s", err, said.String())
		}
		e.mustPrepare(t)
		e.wantOnlyMounts(t)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if all, err := mounts(); err != nil || strings.Contains(fmt.Sprint(all), e.Dir) {
		t.Errorf("mounts are left: %v, %v", all, err)
	}
	e.wantEntries(t)
}

// wantOnlyMounts fails unless each entry of the export is a volume that is mounted once,
// and the export is mounted once.
func (e Export) wantOnlyMounts(t *testing.T) {
	t.Helper()
	all, err := mounts()
	if err != nil {
		t.Fatal(err)
	}
	times := map[string]int{}
	for _, m := range all {
		if strings.HasPrefix(m.point, e.Dir) {
			times[m.point]++
		}
	}
	entries, err := os.ReadDir(e.Dir)
	if err != nil || times[e.Dir] != 1 || len(times) != len(entries)+1 {
		t.Errorf("mounts are %v, entries %v, %v", times, entries, err)
	}
	for _, entry := range entries {
		if times[e.Dir+"/"+entry.Name()] != 1 {
			t.Errorf("%s is mounted %d times", entry.Name(), times[e.Dir+"/"+entry.Name()])
		}
	}
}
