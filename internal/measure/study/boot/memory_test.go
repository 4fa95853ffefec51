package boot

import (
	"os"
	"testing"
)

func TestParseMemory(t *testing.T) {
	const rollup = `55a1c0000000-7ffd4f9f2000 ---p 00000000 00:00 0                          [rollup]
Rss:              184320 kB
Pss:              102400 kB
Pss_Anon:          92160 kB
Shared_Clean:      71680 kB
`
	if rss, pss, err := parseMemory(rollup); rss != 180 || pss != 100 || err != nil {
		t.Errorf("got %v, %v, %v", rss, pss, err)
	}
	for _, text := range []string{"", "Rss: 1 kB\n", "Rss: x kB\nPss: 1 kB\n", "Rss: 1 kB\nPss: 0 kB\n"} {
		if _, _, err := parseMemory(text); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}

// Memory is a mean over processes, so twice the same process has the same.
func TestMemoryOf(t *testing.T) {
	once, err := memoryOf([]int{os.Getpid()})
	if err != nil || len(once) != 2 || once[0].Value < 1 || once[1].Value > once[0].Value {
		t.Fatalf("got %v, %v", once, err)
	}
	twice, err := memoryOf([]int{os.Getpid(), os.Getpid()})
	if err != nil || twice[0].Value > 1.5*once[0].Value {
		t.Errorf("got %v and %v, %v", once, twice, err)
	}
	if _, err := memoryOf([]int{-1}); err == nil {
		t.Error("no error for a process that does not exist")
	}
}
