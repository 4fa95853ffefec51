package boot

import (
	"os"
	"testing"
)

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
