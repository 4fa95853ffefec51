package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// The codes that are not an errno.
const (
	Timeout  = "timeout"
	End      = "end"
	Mismatch = "mismatch"
	Surplus  = "surplus"
	other    = "error"
)

// mismatch is the error of an answer that differs from what was sent.
type mismatch struct{ text string }

func (m mismatch) Error() string { return m.text }

// codeOf returns the Attempt.Code of an error.
func codeOf(err error) string {
	var number syscall.Errno
	var timeout net.Error
	var wrong mismatch
	switch {
	case err == nil:
		return ""
	case errors.As(err, &wrong):
		return Mismatch
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return End
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded),
		errors.As(err, &timeout) && timeout.Timeout():
		return Timeout
	case errors.As(err, &number):
		if name := unix.ErrnoName(number); name != "" {
			return name
		}
		return fmt.Sprintf("errno %d", int(number))
	}
	return other
}
