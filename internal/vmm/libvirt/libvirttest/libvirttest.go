// Package libvirttest runs a real libvirtd and real domains for tests. libvirtd has
// its own mount and process namespaces, so it changes nothing outside, and nothing
// is left when the test ends. Only tests import it.
package libvirttest

import (
	"bytes"
	_ "embed"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"text/template"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
)

// Daemon is a running libvirtd.
type Daemon struct {
	Socket string // its read-write unix socket
	t      testing.TB
	dir    string
	shell  *os.Process // PID 1 of the namespace
}

//go:embed start.sh
var start string

// Start starts libvirtd in the network namespace at the path netns. Without
// UNNEST_PRIVILEGED=1 it skips the test. libvirtd and its domains are killed when
// the test or its process ends.
func Start(t testing.TB, netns string) *Daemon {
	t.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root and libvirtd: set UNNEST_PRIVILEGED=1")
	}
	if err := checkPrograms(); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "libvirt") // t.TempDir can be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	d := &Daemon{Socket: filepath.Join(dir, "libvirt-sock"), t: t, dir: dir}
	log, err := os.Create(d.path("log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command("sh", "-e", "-c", start, "libvirtd", dir)
	cmd.Stdout, cmd.Stderr = log, log
	// The shell is PID 1 of its namespace: all other processes end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL,
	}
	if err := d.await(d.launch(cmd, netns)); err != nil {
		t.Fatalf("start libvirtd: %v", err)
	}
	return d
}

// checkPrograms names the package of a program that is missing.
func checkPrograms() error {
	for program, name := range map[string]string{"libvirtd": "libvirt-daemon", "virsh": "libvirt-clients"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%w; install %s", err, name)
		}
	}
	return nil
}

// await waits until libvirtd answers.
func (d *Daemon) await(ended <-chan struct{}) error {
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		_, err := d.virsh("version")
		if err == nil {
			return nil
		}
		if strings.Contains(err.Error(), "no connection driver available") {
			return errors.New("it has no driver for QEMU; install libvirt-daemon-driver-qemu")
		}
		select {
		case <-ended:
		default:
			if time.Since(begin) < time.Minute {
				continue
			}
		}
		text, _ := os.ReadFile(d.path("log"))
		return fmt.Errorf("%w; the end of its log:\n%s", err, tail(string(text), 10))
	}
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// launch starts cmd from a thread that waits for it: Pdeathsig kills the child when
// the thread that started it ends.
func (d *Daemon) launch(cmd *exec.Cmd, netns string) (ended <-chan struct{}) {
	d.t.Helper()
	started, done := make(chan error), make(chan struct{})
	go func() {
		defer close(done)
		err := ns.WithNetNSPath(netns, func(ns.NetNS) error {
			err := cmd.Start()
			started <- err
			if err == nil {
				_ = cmd.Wait() // it is killed in the end
			}
			return nil
		})
		if err != nil && cmd.Process == nil {
			started <- err
		}
	}()
	if err := <-started; err != nil {
		d.t.Fatal(err)
	}
	d.shell = cmd.Process
	d.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
	})
	return done
}

func (d *Daemon) path(name string) string { return filepath.Join(d.dir, name) }

// Domain describes a domain. Without a kernel it runs no operating system, and
// releases a device only when it is reset.
type Domain struct {
	Name    string
	Kernel  string // path
	Initrd  string // path
	Command string // the kernel's command line
	Root    string // path of a raw disk image, which is not changed
	Seed    string // path of the file opt/unnest/seed in the guest's firmware configuration device
	Ports   int    // pcie-root-ports; NICs use the first ones
	NICs    []NIC
	Drive   string // bus of the drive for credentials, "" for none
	Medium  string // path of the image in it
}

// NIC is a NIC that a domain has from the start.
type NIC struct {
	TAP string // persistent
	MAC string
}

//go:embed domain.xml
var description string

var domain = template.Must(template.New("domain").Funcs(template.FuncMap{
	"text": func(s string) (string, error) {
		var b bytes.Buffer
		err := xml.EscapeText(&b, []byte(s))
		return b.String(), err
	},
	"each": func(n int) []struct{} { return make([]struct{}, n) },
}).Parse(description))

// Boot defines a domain and starts it.
func (d *Daemon) Boot(m Domain) {
	d.t.Helper()
	var text strings.Builder
	err := domain.Execute(&text, struct {
		Domain
		Console string
	}{m, d.Console(m.Name)})
	if err == nil {
		err = os.WriteFile(d.path(m.Name+".xml"), []byte(text.String()), 0o600)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	d.Virsh("define", d.path(m.Name+".xml"))
	d.Virsh("start", m.Name)
}

// Console is the path of the output of a domain's serial console.
func (d *Daemon) Console(domain string) string { return d.path(domain + ".console") }

// Virsh runs a command of virsh and returns its output. When it fails, the test
// fails.
func (d *Daemon) Virsh(args ...string) string {
	d.t.Helper()
	out, err := d.virsh(args...)
	if err != nil {
		d.t.Fatal(err)
	}
	return out
}

func (d *Daemon) virsh(args ...string) (string, error) {
	cmd := exec.Command("virsh", append([]string{"--quiet", "--connect", "qemu+unix:///system?socket=" + d.Socket}, args...)...)
	out, err := cmd.Output()
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("virsh %s: %s", args[0], bytes.TrimSpace(e.Stderr))
	}
	return string(out), err
}

// Stop suspends libvirtd until Continue. Its domains go on.
func (d *Daemon) Stop() { d.signal(syscall.SIGSTOP) }

// Continue resumes libvirtd.
func (d *Daemon) Continue() { d.signal(syscall.SIGCONT) }

// Kill kills libvirtd, and its domains with it.
func (d *Daemon) Kill() { d.signal(syscall.SIGKILL) }

// signal sends a signal to libvirtd, which is a child of the shell.
func (d *Daemon) signal(s syscall.Signal) {
	d.t.Helper()
	pid := d.shell.Pid
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		d.t.Fatal(err)
	}
	for field := range strings.FieldsSeq(string(text)) {
		child, _ := strconv.Atoi(field)
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", child))
		if err == nil && strings.TrimSpace(string(name)) == "libvirtd" {
			if err := syscall.Kill(child, s); err != nil {
				d.t.Fatal(err)
			}
			return
		}
	}
	d.t.Fatal("find libvirtd: it does not run")
}
