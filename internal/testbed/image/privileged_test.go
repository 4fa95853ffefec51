package image

import (
	"os"
	"testing"
	"time"
)

// patience is how long a test waits for things that take seconds.
const patience = 2 * time.Minute

// privileged skips the test unless privileged tests are asked for.
func privileged(t *testing.T) {
	t.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root and Debian's tools: set UNNEST_PRIVILEGED=1")
	}
}
