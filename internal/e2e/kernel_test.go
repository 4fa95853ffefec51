package e2e

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// kernel returns what tells why a guest hangs: its blocked tasks, one on a line, and the threads
// of its QEMU, after the end of its kernel's log.
func (m *node) kernel() string {
	out, err := m.whileItPrints(time.Minute, "echo w >/proc/sysrq-trigger; echo l >/proc/sysrq-trigger; sleep 1; cat /proc/interrupts; dmesg | tail -n 300")
	if err != nil {
		out += fmt.Sprintf("look at the kernel of %s: %v\n", m.Name, err)
	}
	threads, err := exec.Command("ps", "-L", "-o", "comm,stat,pcpu,times,wchan:24", "-p", strconv.Itoa(m.PID)).CombinedOutput()
	return fmt.Sprintf("%sblocked tasks:\n%s\nthreads of QEMU, %v:\n%s", out, strings.Join(blockedTasks(out), "\n"), err, threads)
}

var (
	blockedTask = regexp.MustCompile(`\] task:(\S+) +state:D`)
	onStack     = regexp.MustCompile(`\]  (\w+)\+0x`)
)

// blockedTasks returns the tasks that the kernel's log shows as blocked, each with the functions
// on its stack, the innermost first: "kworker/0:1: schedule < rtnl_lock".
func blockedTasks(log string) (tasks []string) {
	for line := range strings.Lines(log) {
		if m := blockedTask.FindStringSubmatch(line); m != nil {
			tasks = append(tasks, m[1]+":")
		} else if strings.Contains(line, "sysrq: Show backtrace") { // of the processors
			return tasks
		} else if m := onStack.FindStringSubmatch(line); m != nil && len(tasks) > 0 {
			if last := &tasks[len(tasks)-1]; strings.HasSuffix(*last, ":") {
				*last += " " + m[1]
			} else {
				*last += " < " + m[1]
			}
		}
	}
	return tasks
}

func TestBlockedTasks(t *testing.T) {
	log := `[  1.0] sysrq: Show Blocked State
[  1.1] task:kworker/u4:1    state:D stack:0     pid:25    ppid:2
[  1.1] Workqueue: kacpi_hotplug acpi_hotplug_work_fn
[  1.1] Call Trace:
[  1.1]  <TASK>
[  1.1]  __schedule+0x34d/0x9e0
[  1.1]  ? update_load_avg+0x7e/0x780
[  1.1]  rtnl_lock+0x10/0x20
[  1.2] task:ip              state:D stack:0     pid:99    ppid:1
[  1.2]  copy_net_ns+0x7f/0x2b0
[  1.3] sysrq: Show backtrace of all active CPUs
[  1.3]  dump_stack_lvl+0x44/0x5c
`
	want := []string{"kworker/u4:1: __schedule < rtnl_lock", "ip: copy_net_ns"}
	if got := blockedTasks(log); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
