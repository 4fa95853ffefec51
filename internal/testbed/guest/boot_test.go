package guest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const wholeBoot = `SeaBIOS (version 1.16.2)
[    0.000000] Linux version 6.1.0
unnest-boot init 1.25
unnest-boot userspace 2.50
unnest-boot services 3.75
`

func TestConsole(t *testing.T) {
	tests := []struct {
		name                      string
		content                   string
		init, userspace, services time.Duration // 0: not seen
		failed                    string
	}{
		{"nothing yet", "", 0, 0, 0, ""},
		{"whole boot", wholeBoot, 1250 * time.Millisecond, 2500 * time.Millisecond, 3750 * time.Millisecond, ""},
		{"last line not complete", "unnest-boot init 1.25\nunnest-boot userspace 12", 1250 * time.Millisecond, 0, 0, ""},
		{"carriage returns", "unnest-boot init 1.25\r\n", 1250 * time.Millisecond, 0, 0, ""},
		{"mark behind a kernel message", "[    1.2] virtio_blk: unnest-boot init 1.25\n", 1250 * time.Millisecond, 0, 0, ""},
		{"first of two wins", "unnest-boot init 1\nunnest-boot init 2\n", time.Second, 0, 0, ""},
		{"unknown mark", "unnest-boot lunch 12.00\nunnest-boot init 1\n", time.Second, 0, 0, ""},
		{"no time", "unnest-boot init\nunnest-boot userspace soon\n", 0, 0, 0, ""},
		{"no possible time", "unnest-boot init NaN\nunnest-boot userspace -1\nunnest-boot services 1e300\n", 0, 0, 0, ""},
		{"garbage", "\x00\xff unnest-boot\nunnest-boot \n\xf0unnest-\n", 0, 0, 0, ""},
		{"gave up", "unnest-boot init 1\nunnest-boot failed: no root disk\n", time.Second, 0, 0, "no root disk"},
		{"giving up, not complete", "unnest-boot failed: no ro", 0, 0, 0, ""},
		{"first failure wins", "unnest-boot failed: no seed\nKernel panic\n", 0, 0, 0, "no seed"},
		{"panic, not complete", "Kernel pan", 0, 0, 0, ""},
		{"panic", "unnest-boot init 1\n[    2.0] Kernel panic - not syncing: VFS\n", time.Second, 0, 0, "[    2.0] Kernel panic - not syncing: VFS"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var c console
			now := time.Unix(1000, 0)
			c.read(tt.content, now)
			if c.failed != tt.failed {
				t.Errorf("failed: got %q, want %q", c.failed, tt.failed)
			}
			for _, m := range []struct {
				name string
				got  mark
				want time.Duration
			}{{"init", c.init, tt.init}, {"userspace", c.userspace, tt.userspace}, {"services", c.services, tt.services}} {
				if m.got.uptime != m.want || m.got.seen() != (m.want > 0) || m.got.seen() && !m.got.at.Equal(now) {
					t.Errorf("%s: got %+v, want %v", m.name, m.got, m.want)
				}
			}
		})
	}
}

// A console is read repeatedly while it grows. A mark keeps the time at which it was
// first seen.
func TestConsoleGrows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "console.log")
	c := console{path: path}
	c.look()
	if c.init.seen() || c.failed != "" {
		t.Errorf("a console that is not there yet: %+v", c)
	}
	var first mark
	for n := range len(wholeBoot) + 1 {
		if err := os.WriteFile(path, []byte(wholeBoot[:n]), 0o600); err != nil {
			t.Fatal(err)
		}
		c.look()
		if first.seen() && c.init != first {
			t.Fatalf("after %d bytes: init moved from %+v to %+v", n, first, c.init)
		}
		first = c.init
	}
	if !c.services.seen() || c.services.at.Before(c.init.at) {
		t.Errorf("got %+v", c)
	}
}

// Whatever a guest prints, a mark does not change after it was seen, and has a valid
// uptime.
func FuzzConsole(f *testing.F) {
	f.Add(wholeBoot, 40)
	f.Add("unnest-boot failed: no seed\n", 12)
	f.Add("Kernel panic - not syncing", 3)
	f.Add("unnest-boot init inf\nunnest-boot init -0x1p-2\nunnest-boot init 1_0\n", 0)
	f.Add("unnest-boot unnest-boot init 1\n", 20)
	f.Fuzz(func(t *testing.T, content string, cut int) {
		var c console
		start := time.Unix(1000, 0)
		c.read(content[:max(0, min(cut, len(content)))], start)
		before := c
		c.read(content, start.Add(time.Second))
		for _, m := range []struct{ before, after mark }{
			{before.init, c.init}, {before.userspace, c.userspace}, {before.services, c.services},
		} {
			if m.before.seen() && m.after != m.before {
				t.Errorf("a mark moved from %+v to %+v", m.before, m.after)
			}
			if m.after.uptime < 0 || !m.after.seen() && m.after.uptime != 0 {
				t.Errorf("impossible mark %+v", m.after)
			}
		}
		if before.failed != "" && c.failed == "" {
			t.Errorf("failure %q is forgotten", before.failed)
		}
		if strings.Contains(c.failed, "\n") {
			t.Errorf("failure %q is not one line", c.failed)
		}
	})
}

// The parts of a boot add up to the total.
func TestBootTimes(t *testing.T) {
	started := time.Unix(1000, 0)
	tests := []struct {
		name    string
		content string
		seen    time.Duration // when the last mark was seen, after the launch
		ready   time.Duration
		want    BootTimes
	}{
		{"whole boot", wholeBoot, 4 * time.Second, 4500 * time.Millisecond, BootTimes{
			Firmware: 250 * time.Millisecond, Kernel: 1250 * time.Millisecond, Userspace: 2500 * time.Millisecond,
			SSH: 500 * time.Millisecond, Total: 4500 * time.Millisecond,
		}},
		{"mark of the kernel lost", "unnest-boot services 3.75\n", 4 * time.Second, 4 * time.Second, BootTimes{
			Firmware: 250 * time.Millisecond, Userspace: 3750 * time.Millisecond, Total: 4 * time.Second,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var c console
			c.read(tt.content, started.Add(tt.seen))
			got := c.times(started, time.Time{}, started.Add(tt.ready))
			if got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			if sum := got.Firmware + got.Kernel + got.Userspace + got.SSH; sum != got.Total {
				t.Errorf("the parts sum to %v, the whole is %v", sum, got.Total)
			}
		})
	}
}

func TestClock(t *testing.T) {
	started := time.Unix(1000, 0)
	tests := []struct {
		uptime, seen time.Duration // the second one after the launch
		want         string
	}{
		{11710 * time.Millisecond, 13 * time.Second, ""},
		{3 * time.Second, 2 * time.Minute, ""}, // seen late
		{111930 * time.Millisecond, 17 * time.Second, "112 s there were 17 s here"},
		{0, time.Second, ""},
	}
	for _, tt := range tests {
		c := console{services: mark{tt.uptime, started.Add(tt.seen)}}
		if err := c.checkClock(started); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("up for %v, seen after %v: got %v, want %q", tt.uptime, tt.seen, err, tt.want)
		}
	}
}

func TestEndOf(t *testing.T) {
	const fault = `[   70.1] unnest-boot services
[  103.044001] BUG: unable to handle page fault for address: ffffa1b2c3d4e5f6
[  103.044050] #PF: supervisor read access in kernel mode
[  103.044100] Oops: 0000 [#1] PREEMPT SMP NOPTI
[  103.044200] CPU: 0 PID: 312 Comm: iperf3 Not tainted 6.1.0-37-amd64
[  103.044300] RIP: 0010:memcpy_orig+0x15/0x140
[  103.044400] Code: 00 00 48 89 f8
[  103.045000] RIP: 0033:0x7f1122334455
[  103.045568] CR2: 00007fff336527f8 CR3: 0000000008fc2000 CR4: 00000000003106f0
[  103.045713] Kernel panic - not syncing: Fatal exception in interrupt
[  103.050046] Kernel Offset: disabled
`
	want := "[  103.044001] BUG: unable to handle page fault for address: ffffa1b2c3d4e5f6 | [  103.044100] Oops: 0000 [#1] PREEMPT SMP NOPTI | " +
		"[  103.044300] RIP: 0010:memcpy_orig+0x15/0x140 | [  103.050046] Kernel Offset: disabled"
	if got := endOf(fault); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := endOf("a\nb\nc\nd\n"); got != "b | c | d" {
		t.Errorf("without a fault: got %q", got)
	}
}
