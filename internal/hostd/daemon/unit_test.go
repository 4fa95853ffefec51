package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// unit is the installed systemd unit in which the lab runs its daemons, with all its
// settings; "" for none. e2e.TestUnit runs tests of this package so. It installs a drop-in
// that runs the daemon of the lab described in unitDir, in the lab's network namespace.
var unit = os.Getenv("UNNEST_TEST_UNIT")

// unitDir has what the drop-in refers to: the arguments, the namespace, and the output.
const unitDir = "/run/unnest-test"

// startInUnit starts the daemon in the unit, without capabilities such as
// "-bpf,-perfmon", and waits until the daemon has said that it is ready.
func (l *lab) startInUnit(without string, unplugTimeout time.Duration) {
	l.t.Helper()
	l.check(os.WriteFile(unitDir+"/env", fmt.Appendf(nil, "LAB=%s\nTIMEOUT=%s\n", l.dir, unplugTimeout), 0o600))
	netns := unitDir + "/netns"
	_ = os.Remove(netns) // of an earlier lab
	l.check(os.Symlink(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), l.host.Fd()), netns))
	l.dropCapabilities(without)
	l.systemctl("start", unit)
	pid, err := strconv.Atoi(l.systemctl("show", "--property=MainPID", "--value", unit))
	l.check(err)
	l.daemon = &exec.Cmd{}
	l.daemon.Process, err = os.FindProcess(pid)
	l.check(err)
	daemon := l.daemon
	l.t.Cleanup(func() {
		if l.daemon == daemon { // the latest
			l.endInUnit(syscall.SIGKILL)
		}
	})
	content, err := os.ReadFile(unitDir + "/out")
	l.check(err)
	l.addr = strings.TrimSpace(string(content))
}

// dropCapabilities removes capabilities from the unit, as in "-bpf,-perfmon", or restores
// them all.
func (l *lab) dropCapabilities(without string) {
	l.t.Helper()
	path := filepath.Join("/run/systemd/system", unit+".d", "zz-without.conf")
	if without == "" {
		if os.Remove(path) == nil {
			l.systemctl("daemon-reload")
		}
		return
	}
	names := strings.ToUpper(strings.NewReplacer("-", "CAP_", ",", " ").Replace(without))
	l.check(os.MkdirAll(filepath.Dir(path), 0o755))
	l.check(os.WriteFile(path, []byte("[Service]\nCapabilityBoundingSet=~"+names+"\n"), 0o644))
	l.systemctl("daemon-reload")
}

// endInUnit ends the daemon in the unit and waits until systemd has noticed.
func (l *lab) endInUnit(s os.Signal) {
	l.t.Helper()
	_, _ = l.t.Output().Write([]byte(l.log()))
	_ = l.daemon.Process.Signal(s) // it may have ended
	l.eventually("the unit has ended", func() bool {
		state := l.systemctl("show", "--property=ActiveState", "--value", unit)
		return state == "failed" || state == "inactive"
	})
}

func (l *lab) systemctl(args ...string) string {
	l.t.Helper()
	out, err := exec.Command("systemctl", args...).CombinedOutput()
	if err != nil {
		l.t.Fatalf("systemctl %s: %v: %s%s", strings.Join(args, " "), err, out, l.log())
	}
	return strings.TrimSpace(string(out))
}
