package rundir

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/measure/result"
)

// execution returns n valid samples of one execution.
func execution(configuration string, block, n int) []result.Sample {
	samples := make([]result.Sample, n)
	for i := range samples {
		samples[i] = result.Sample{
			Run: "r1", Configuration: configuration, Suite: "network", Case: "udp_rr/1280",
			Metric: "metric" + string(rune('a'+i)), Unit: "us", Order: result.LIB,
			Value: 100 + float64(i), Block: block, Repetition: block, Boot: "b",
			Start: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), Duration: 2.5,
			Tags: map[string]string{"size": "1280"},
		}
	}
	return samples
}

// encode returns the journal of the executions.
func encode(t testing.TB, executions ...[]result.Sample) []byte {
	t.Helper()
	var journal []byte
	for _, e := range executions {
		lines, err := result.EncodeExecution(e)
		if err != nil {
			t.Fatal(err)
		}
		journal = append(journal, lines...)
	}
	return journal
}

// newRun is a run to which executions can belong.
func newRun() result.Run {
	run := result.Run{ID: "r1", State: result.Running, Repetitions: 6, Configurations: []result.Configuration{{Name: "NAT"}, {Name: "BrFusion"}}}
	c := result.Case{Suite: "network", Name: "udp_rr/1280"}
	for _, s := range execution("NAT", 0, 5) {
		c.Metrics = append(c.Metrics, result.Metric{Name: s.Metric, Unit: s.Unit, Order: s.Order})
	}
	run.Cases = []result.Case{c}
	return run
}

// create creates a run directory and closes it at the end of the test.
func create(t *testing.T, path string) *Dir {
	t.Helper()
	d, err := Create(path, newRun())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func appendAll(t *testing.T, d *Dir, executions ...[]result.Sample) {
	t.Helper()
	for _, e := range executions {
		if err := d.Append(e); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRunDirectoryRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs", "one")
	d := create(t, path)
	a, b := execution("NAT", 0, 3), execution("BrFusion", 0, 2)
	appendAll(t, d, a)
	if err := d.Update(func(r *result.Run) { r.State = result.Interrupted }); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}

	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if d.Path() != path || d.Dropped() != "" || d.Run().State != result.Interrupted {
		t.Errorf("opened %s, dropped %q, state %s", d.Path(), d.Dropped(), d.Run().State)
	}
	appendAll(t, d, b)
	run, samples, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(d.Run(), run); diff != "" {
		t.Errorf("run differs:\n%s", diff)
	}
	for name, got := range map[string][]result.Sample{"loaded": samples, "held": d.Samples()} {
		if diff := cmp.Diff(slices.Concat(a, b), got); diff != "" {
			t.Errorf("%s samples differ:\n%s", name, diff)
		}
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 2 {
		t.Errorf("run directory holds %v, want run.json and samples.jsonl only", entries)
	}
}

func TestCreateRefusesADirectoryWithARun(t *testing.T) {
	path := t.TempDir()
	if err := create(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	_, err := Create(path, result.Run{ID: "r2"})
	if !errors.Is(err, ErrHoldsRun) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "--resume") {
		t.Errorf("error %v, want ErrHoldsRun naming %s and --resume", err, path)
	}
	if run, _, err := Load(path); err != nil || run.ID != "r1" {
		t.Errorf("run after the refused Create: %q, %v", run.ID, err)
	}
}

func TestCreateTakesADirectoryWhoseRunNeverBegan(t *testing.T) {
	path := t.TempDir()
	if err := os.WriteFile(filepath.Join(path, SamplesFile), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	create(t, path)
}

func TestTwoWritersCannotShareARun(t *testing.T) {
	path := t.TempDir()
	d := create(t, path)
	if _, err := Open(path); !errors.Is(err, ErrLocked) {
		t.Errorf("second Open: %v, want ErrLocked", err)
	}
	if _, err := Create(path, result.Run{}); !errors.Is(err, ErrLocked) {
		t.Errorf("second Create: %v, want ErrLocked", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

func TestOpenCutsATornExecution(t *testing.T) {
	path := t.TempDir()
	d := create(t, path)
	a, b := execution("NAT", 0, 3), execution("BrFusion", 0, 3)
	appendAll(t, d, a)
	d.Close()

	name := filepath.Join(path, SamplesFile)
	whole := encode(t, a)
	torn := append(slices.Clone(whole), encode(t, b)[:700]...)
	if err := os.WriteFile(name, torn, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, samples, err := Load(path); err != nil || len(samples) != 3 {
		t.Errorf("load: %d samples, %v", len(samples), err)
	}
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if !strings.Contains(d.Dropped(), name) || !strings.Contains(d.Dropped(), "byte") {
		t.Errorf("%q names neither file nor byte", d.Dropped())
	}
	appendAll(t, d, b)
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if want := append(whole, encode(t, b)...); string(got) != string(want) {
		t.Errorf("journal after resume:\n%s\nwant:\n%s", got, want)
	}
}

// compress replaces the journal of the run directory path by its compressed form.
func compress(t *testing.T, path string) {
	t.Helper()
	plain := filepath.Join(path, SamplesFile)
	data, err := os.ReadFile(plain)
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), os.WriteFile(filepath.Join(path, CompressedFile), buf.Bytes(), 0o644), os.Remove(plain)); err != nil {
		t.Fatal(err)
	}
}

func TestCompressedJournalIsReadAndNotWritten(t *testing.T) {
	path := t.TempDir()
	d := create(t, path)
	want := execution("NAT", 0, 3)
	appendAll(t, d, want)
	d.Close()
	compress(t, path)

	_, got, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("samples differ:\n%s", diff)
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "run gunzip "+filepath.Join(path, CompressedFile)) {
		t.Errorf("open: %v, want an error that names gunzip and the file", err)
	}
	if _, err := Create(path, result.Run{ID: "r2"}); !errors.Is(err, ErrHoldsRun) {
		t.Errorf("create: %v, want ErrHoldsRun", err)
	}
	if entries, err := os.ReadDir(path); err != nil || len(entries) != 2 {
		t.Errorf("run directory holds %v, %v; want run.json and samples.jsonl.gz only", entries, err)
	}
}

func TestLoadRefusesABrokenCompressedJournal(t *testing.T) {
	path := t.TempDir()
	d := create(t, path)
	appendAll(t, d, execution("NAT", 0, 3))
	d.Close()
	compress(t, path)
	name := filepath.Join(path, CompressedFile)
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, broken := range [][]byte{nil, []byte("{}\n"), whole[:len(whole)-5]} {
		if err := os.WriteFile(name, broken, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Load(path); err == nil || !strings.Contains(err.Error(), "decompress "+name) {
			t.Errorf("%d bytes: error %v, want one that names %s", len(broken), err, name)
		}
	}
	if err := os.WriteFile(filepath.Join(path, SamplesFile), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Load(path); err == nil || !strings.Contains(err.Error(), "has both") {
		t.Errorf("both journals: %v", err)
	}
}

func TestOpenAndLoadNameWhatIsMissingOrBroken(t *testing.T) {
	empty := t.TempDir()
	if _, err := Open(empty); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "holds no run") {
		t.Errorf("open of an empty directory: %v", err)
	}
	if _, _, err := Load(empty); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("load of an empty directory: %v", err)
	}
	path := t.TempDir()
	create(t, path).Close()
	for _, file := range []string{SamplesFile, RunFile} { // run.json is read first
		if err := os.WriteFile(filepath.Join(path, file), []byte("{]\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), filepath.Join(path, file)) {
			t.Errorf("open with a broken %s: %v", file, err)
		}
	}
}

func TestAppendRefuses(t *testing.T) {
	d := create(t, t.TempDir())
	appendAll(t, d, execution("NAT", 0, 2), nil)
	if err := d.Append(execution("NAT", 0, 2)); err == nil || !strings.Contains(err.Error(), "already in the journal") {
		t.Errorf("the same execution again: %v", err)
	}
	other := execution("NAT", 1, 1)
	other[0].Run = "r2"
	if err := d.Append(other); err == nil || !strings.Contains(err.Error(), `"r2"`) {
		t.Errorf("a sample of another run: %v", err)
	}
	if n := len(d.Samples()); n != 2 {
		t.Errorf("%d samples held, want 2", n)
	}
}

func TestAppendKeepsTheJournalWholeWhenAWriteFails(t *testing.T) {
	path := t.TempDir()
	d := create(t, path)
	appendAll(t, d, execution("NAT", 0, 2))
	journal := d.journal
	readOnly, err := os.Open(journal.Name())
	if err != nil {
		t.Fatal(err)
	}
	d.journal = readOnly
	if err := d.Append(execution("NAT", 1, 2)); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("write to a read-only journal: %v", err)
	}
	if err := d.Append(execution("NAT", 1, 2)); err == nil || !strings.Contains(err.Error(), "incomplete") {
		t.Errorf("write after a failed truncation: %v", err)
	}
	readOnly.Close()
	d.journal = journal
	if _, samples, err := Load(path); err != nil || len(samples) != 2 {
		t.Errorf("after the failures: %d samples, %v", len(samples), err)
	}
}

// A full disk loses only the execution that is being written.
func TestFullDisk(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("mounts a tmpfs: set UNNEST_PRIVILEGED=1")
	}
	mount := t.TempDir()
	if err := unix.Mount("tmpfs", mount, "tmpfs", 0, "size=32k"); err != nil {
		t.Fatalf("mount tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(mount, 0); err != nil {
			t.Errorf("unmount tmpfs: %v", err)
		}
	})
	path := filepath.Join(mount, "run")
	d, err := Create(path, newRun())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	block := 0
	for ; err == nil && block < 1000; block++ {
		err = d.Append(execution("NAT", block, 5))
	}
	if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "are kept") {
		t.Fatalf("error %v, want one that names %s and says that samples are kept", err, path)
	}
	_, journal, err := Read(path)
	if err != nil || journal.Dropped != "" || len(journal.Samples) != 5*(block-1) {
		t.Errorf("%d samples, dropped %q, %v; want %d whole ones", len(journal.Samples), journal.Dropped, err, 5*(block-1))
	}
}

// What was discarded does not count as a result, and is counted again after a restart.
func TestDiscarded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	d := create(t, path)
	first, second, last := execution("NAT", 0, 2), execution("NAT", 0, 2), execution("NAT", 0, 2)
	for i := range first {
		first[i].Discarded, second[i].Discarded = 1, 2
	}
	appendAll(t, d, first, second)
	if err := d.Append(second); err == nil || !strings.Contains(err.Error(), "is already in the journal") {
		t.Errorf("discarded twice with one number: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if n := again.Discarded(last[0].Execution()); n != 2 || len(again.Samples()) != 0 {
		t.Errorf("%d discarded, %d samples; want 2 and none", n, len(again.Samples()))
	}
	if err := again.Update(func(r *result.Run) { r.Resumptions = 1 }); err != nil {
		t.Fatal(err)
	}
	if n := again.Discarded(last[0].Execution()); n != 0 {
		t.Errorf("%d discarded since the run was resumed, want none", n)
	}
	appendAll(t, again, last)
	_, journal, err := Read(path)
	if err != nil || len(journal.Samples) != 2 || len(journal.Discarded) != 4 || journal.Samples[0].Discarded != 0 {
		t.Errorf("got %+v, %v; want 2 samples and 4 discarded", journal, err)
	}
}

func TestReadRefusesForeignSamples(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	d := create(t, path)
	appendAll(t, d, execution("NAT", 0, 1))
	if err := d.Update(func(r *result.Run) { r.ID = "r2" }); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Load(path); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), `run "r1": this is run "r2"`) {
		t.Errorf("got %v, want an error that names the directory and both runs", err)
	}
}

// What a later version has written is refused before its keys are read, which may have other types.
func TestReadRefusesALaterSchema(t *testing.T) {
	path := t.TempDir()
	for file, text := range map[string]string{RunFile: `{"schema_version": 99, "cases": {}}`, SamplesFile: "[]\n"} {
		if err := os.WriteFile(filepath.Join(path, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	_, errRun := ReadRun(path)
	_, _, errLoad := Load(path)
	for _, err := range []error{errRun, errLoad} {
		if err == nil || !strings.HasSuffix(err.Error(), "run.json: schema_version 99: this version of unnest reads up to 1: use a later one") {
			t.Errorf("got %v", err)
		}
	}
}

// A disk that is full before the first sample leaves nothing to resume, and does not say so.
func TestFullDiskAtFirst(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("mounts a tmpfs: set UNNEST_PRIVILEGED=1")
	}
	mount := t.TempDir()
	if err := unix.Mount("tmpfs", mount, "tmpfs", 0, "size=4k"); err != nil {
		t.Fatalf("mount tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(mount, 0); err != nil {
			t.Errorf("unmount tmpfs: %v", err)
		}
	})
	if err := os.WriteFile(filepath.Join(mount, "other"), make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(mount, "run")
	_, err := Create(path, result.Run{ID: "r1"})
	if !errors.Is(err, unix.ENOSPC) || strings.Contains(err.Error(), "--resume") || !strings.Contains(err.Error(), "free some space and run the command again") {
		t.Errorf("got %v", err)
	}
	if left, err := os.ReadDir(path); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
