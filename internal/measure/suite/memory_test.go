package suite

import (
	"strings"
	"testing"
)

func TestMemoryScripts(t *testing.T) {
	checkScripts(t, "memory", memory())
	if n := len(memory()); n < 9 {
		t.Errorf("%d cases: the paper has 9", n)
	}
}

func TestMemoryParse(t *testing.T) {
	checkRecorded(t, memory(), map[string][]float64{
		"memory-stream": {44.33}, "memory-mbw-memcpy": {3625.898}, "memory-mbw-dumb": {4721.714}, "memory-mbw-mcblock": {10341.262},
		"memory-read-seq": {7343.46}, "memory-write-seq": {28415.42}, "memory-read-rnd": {1981.22}, "memory-write-rnd": {2256.48},
		"memory-cache-read": {45601.98}, "memory-cache-write": {21820.44}, "memory-memcpy": {245.6}, "memory-vm": {26438.49},
	})
}

func TestMemoryRefusals(t *testing.T) {
	stream, err := lookup("memory-stream")
	if err != nil {
		t.Fatal(err)
	}
	output := recorded(t, "memory-stream")
	checkRefusals(t, stream.Parse, []refusal{
		{"nothing", "", "read throughput: no output"},
		{"another stressor", recorded(t, "memory-vm"), lastLineOf(recorded(t, "memory-vm"))},
		{"cut", output[:strings.Index(output, "stress-ng: metrc")],
			`read throughput: no such line, output ends with "` + strings.TrimSpace(lineWith(output, "too short")) + `"`},
	})
	read, err := lookup("memory-read-seq")
	if err != nil {
		t.Fatal(err)
	}
	checkRefusals(t, read.Parse, []refusal{
		{"block", recorded(t, "error-sysbench-block"), `read throughput: no such line, but "FATAL: Invalid value for memory-block-size: 3000"`},
	})
}

// lastLineOf is the error that quotes the last line of output.
func lastLineOf(output string) string {
	output = strings.TrimSpace(output)
	return `read throughput: no such line, output ends with "` + strings.TrimSpace(output[strings.LastIndex(output, "\n")+1:]) + `"`
}

// lineWith returns the first line of output that has text in it.
func lineWith(output, text string) string {
	for line := range strings.Lines(output) {
		if strings.Contains(line, text) {
			return line
		}
	}
	return ""
}

// TestMBWMemory checks that the two arrays leave half of the memory.
func TestMBWMemory(t *testing.T) {
	c, err := lookup("memory-mbw-memcpy")
	if err != nil {
		t.Fatal(err)
	}
	for memory, want := range map[int64]string{
		64 * gib:  "mbw -t0 -n 10 1024\n",
		gib:       "mbw -t0 -n 10 256\n",
		100 * mib: "mbw -t0 -n 10 25\n",
	} {
		if got := c.Run(Paper, Resources{VCPUs: 1, Memory: memory}); got != want {
			t.Errorf("%d MiB: got %q, want %q", memory/mib, got, want)
		}
	}
}
