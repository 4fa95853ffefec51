package guest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"unnest.io/unnest/internal/testbed/image"
	"unnest.io/unnest/internal/vmm/qmp"
)

// guestConsole plays a guest that prints lines and answers questions for its clock.
func guestConsole(t *testing.T, prints string, answer func(n int) string) *control {
	t.Helper()
	host, inside := net.Pipe()
	go func() {
		defer inside.Close()
		if _, err := io.WriteString(inside, prints); err != nil || answer == nil {
			return
		}
		questions := bufio.NewScanner(inside)
		for n := 1; questions.Scan(); n++ {
			if questions.Text() != fmt.Sprint("clock ", n) {
				t.Errorf("question %d is %q", n, questions.Text())
			}
			if _, err := io.WriteString(inside, answer(n)); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { _ = host.Close() })
	return &control{console: host}
}

// The guest's clock is that of the answer that came fastest. What else the guest prints is an
// error or is ignored.
func TestAwaitFrozen(t *testing.T) {
	at := func(n int, late, ahead time.Duration) string { // an answer after late
		now := time.Now().Add(late/2 + ahead)
		time.Sleep(late)
		return fmt.Sprintf("unnest-boot clock %d %d.%06d\n", n, now.Unix(), now.Nanosecond()/1000)
	}
	const begin = "Linux version 6\nunnest-boot init 1.5\nunnest-boot frozen 8.25\n"
	for _, tt := range []struct {
		name, prints string
		answer       func(n int) string
		ahead        time.Duration
		want         string // in the error; empty: none
	}{
		{"at once", begin, func(n int) string { return at(n, time.Millisecond, 3*time.Second) }, 3 * time.Second, ""},
		{"fast in the end", begin, func(n int) string {
			if n < 5 {
				return at(n, 2*time.Second, time.Hour)
			}
			return at(n, time.Millisecond, -time.Second)
		}, -time.Second, ""},
		{"never fast", begin, func(n int) string { return at(n, time.Duration(2*clockTries-n)*time.Second, time.Minute) }, time.Minute, ""},
		{"its engine fails", "unnest-boot failed: no container engine\n", nil, 0, "no container engine"},
		{"it panics", "Kernel panic - not syncing: VFS\n", nil, 0, "Kernel panic - not syncing: VFS"},
		{"another number", begin, func(n int) string { return at(n+1, 0, 0) }, 0, "to question 1 for its time"},
		{"no time", begin, func(int) string { return "unnest-boot clock 1\n" }, 0, "to question 1 for its time"},
		{"it ends", "Linux version 6\n", nil, 0, "read its console: EOF"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ahead, err := guestConsole(t, tt.prints, tt.answer).awaitFrozen(t.Context())
				if tt.want == "" && (err != nil || ahead != tt.ahead) {
					t.Errorf("got %v, %v; want %v", ahead, err, tt.ahead)
				}
				if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
					t.Errorf("got %v, want %q", err, tt.want)
				}
			})
		})
	}
}

// A guest that says nothing is waited for until ctx ends, whose cause is the error.
func TestAwaitFrozenGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("write disk: no space")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(full) })
		silent, other := net.Pipe()
		defer other.Close()
		if _, err := (&control{console: silent}).awaitFrozen(ctx); !errors.Is(err, full) {
			t.Errorf("got %v, want %v", err, full)
		}
	})
}

// A disk that QEMU cannot write to ends the freeze, and the error says why.
func TestWhileWriting(t *testing.T) {
	ours, theirs := net.Pipe()
	subscribed := make(chan struct{})
	go func() {
		defer theirs.Close()
		_, _ = io.WriteString(theirs, `{"QMP": {"version": {}, "capabilities": []}}`+"\n")
		var asked struct {
			ID json.RawMessage `json:"id"`
		}
		if err := json.NewDecoder(theirs).Decode(&asked); err != nil {
			t.Error(err)
			return
		}
		_, _ = fmt.Fprintf(theirs, `{"return": {}, "id": %s}`+"\n", asked.ID)
		<-subscribed
		_, _ = io.WriteString(theirs, `{"event": "BLOCK_IO_ERROR", "data": {"reason": "No space left on device"}, "timestamp": {"seconds": 1, "microseconds": 0}}`+"\n")
	}()
	monitor, err := qmp.New(t.Context(), ours)
	if err != nil {
		t.Fatal(err)
	}
	defer monitor.Close()
	ctx, stop := (&control{monitor: monitor}).whileWriting(t.Context())
	defer stop()
	close(subscribed)
	<-ctx.Done()
	if cause := context.Cause(ctx); !strings.HasPrefix(cause.Error(), "write disk: ") || !strings.Contains(cause.Error(), "No space left on device") {
		t.Errorf("got %v", cause)
	}
}

// A QEMU that does not save its state is reported. The error has its command line.
func TestSaveThatHangs(t *testing.T) {
	c := fakeQEMU(t, `(echo unnest-boot frozen 1; while read -r _ n; do echo "unnest-boot clock $n $(date +%s.%6N)"; done) <&3 >&3 &
exec <&4 >&4
echo '{"QMP": {"version": {}, "capabilities": []}}'
while read -r asked; do
	case $asked in
	*migrate-set-capabilities*) : >"$0.saves"; exec sleep 60 ;;
	*'"stop"'*) echo '{"event": "STOP", "timestamp": {"seconds": 1, "microseconds": 0}}' ;;
	esac
	echo '{"return": {}, "id": '"${asked##*:}"
done`)
	c.patience = limits{notice: 10 * time.Millisecond, silent: patience, all: patience}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("reported")
	c.Progress = func(string) {
		if _, err := os.Stat(filepath.Join(filepath.Dir(c.Image.Root), QEMU(image.AMD64)+".saves")); err == nil {
			cancel(why)
		}
	}
	if err := os.WriteFile(c.Image.Root, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := c.frozen(&Snapshot{Dir: t.TempDir(), making: true}).freeze(ctx)
	if !errors.Is(err, why) {
		t.Errorf("got %v, want that it was %v", err, why)
	}
	for _, want := range []string{"save state: qmp migrate-set-capabilities: ", "; QEMU (pid ", "; it was started by: sleep 60"} {
		if err == nil || strings.Count(err.Error(), want) != 1 {
			t.Errorf("%q is not in, or twice: %v", want, err)
		}
	}
}
