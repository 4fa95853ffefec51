package e2e

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	_ "embed"
	"encoding/pem"
	"encoding/xml"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/measure/machines/guestimage"
	"unnest.io/unnest/internal/testbed/guest"
)

// A reader who follows docs/brfusion.md literally gets a pod with its own NIC, and after the
// commands of the last step nothing is left. Only what is the reader's own differs: the
// accelerator and the disk of the VM, and systemd.
func TestBrFusionPage(t *testing.T) {
	unnestBinary(t)
	p := &page{t: t, blocks: marked(t, "../../docs/brfusion.md"), dir: t.TempDir()}
	p.prepareVM()
	p.startHost()
	before := p.traces()
	printed := map[string]string{ // output, by a part of the block
		"//10.201.1.1/":          "hello from the pod\n",
		"/healthz":               "ok\n",
		"http://127.0.0.1":       `unnest_hostd_slots{guest="node1",state="all"} 4`,
		"unnest hostd status":    "10.201.1.1/16",
		"ip link del br-unnest":  "",
		"qemu-system-x86_64 ":    "",
		"systemctl enable --now": "",
	}
	for _, b := range p.blocks {
		switch verb, path, _ := strings.Cut(b.mark, " "); verb {
		case "run":
			out := p.run(p.adapt(b.text))
			p.printed += out
			for part, want := range printed {
				if strings.Contains(b.text, part) {
					if delete(printed, part); !strings.Contains(out, want) {
						t.Errorf("%s: printed %s, want %q", b.text, out, want)
					}
				}
			}
			if strings.Contains(b.text, "qemu-system-x86_64 ") {
				p.awaitVM()
			}
			if strings.Contains(b.text, "//10.201.1.1/") {
				p.attack()
			}
		case "guest":
			p.run(fmt.Sprintf("ssh root@%s 'cat >%s' <<'END'\n%s\nEND", p.address, path, b.text))
		}
	}
	if strings.Contains(p.printed, "UNGUARDED") {
		t.Errorf("the status lists a port that is not guarded: %s", p.printed)
	}
	for part := range printed {
		t.Errorf("docs/brfusion.md has no executed block with %q", part)
	}
	if after := p.traces(); after != before {
		t.Errorf("the commands leave something: before them:\n%s\nafter them:\n%s", before, after)
	}
}

// The files that the section on libvirt shows are valid, and agree with the daemon's advice.
func TestBrFusionPageOfLibvirt(t *testing.T) {
	installed, err := os.ReadFile("../../deploy/hostd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, b := range marked(t, "../../docs/brfusion.md") {
		switch b.mark {
		case "configuration":
			seen++
			p, err := quota.Parse("page.yaml", append(installed, b.text...))
			if err != nil || len(p.Guests) != 1 || p.Guests[0].Libvirt == nil {
				t.Errorf("the installed configuration with the page's lines: got %+v, %v; want one guest of libvirt", p.Guests, err)
			}
		case "devices":
			seen++
			var devices struct {
				Content string `xml:",innerxml"`
			}
			if err := xml.Unmarshal([]byte("<devices>"+b.text+"</devices>"), &devices); err != nil {
				t.Error(err)
			}
			if port := "<controller type='pci' model='pcie-root-port'/>"; !strings.Contains(b.text, port) {
				t.Errorf("the devices do not contain %s: %s", port, b.text)
			}
		}
	}
	if seen != 2 {
		t.Errorf("docs/brfusion.md has %d of the two blocks", seen)
	}
}

// page is a page whose blocks are executed on a host of its own: namespaces of processes,
// mounts and network.
type page struct {
	t       *testing.T
	blocks  []block
	dir     string // of the test's own files
	pid     int    // PID 1 of the host
	address string // of the VM
	disk    string // options of QEMU for the VM's disk
	printed string // by the commands of the page
}

// prepareVM makes the reader's VM: it has an address, an SSH server that knows the reader, and
// containerd.
func (p *page) prepareVM() {
	p.t.Helper()
	image, err := guestimage.Build(p.t.Context(), filepath.Dir(unnestBinary(p.t)), func(string) {})
	p.check(err)
	_, hostKey, err := ed25519.GenerateKey(rand.Reader)
	p.check(err)
	_, login, err := ed25519.GenerateKey(rand.Reader)
	p.check(err)
	signer, err := ssh.NewSignerFromKey(login)
	p.check(err)
	private, err := ssh.MarshalPrivateKey(login, "")
	p.check(err)
	address, gateway := p.find(`address ([0-9./]+)`), p.find(`gateway ([0-9.]+)`)
	p.address, _, _ = strings.Cut(address, "/")
	seed, err := guest.Seed{
		Hostname: "node1", HostKey: hostKey, Authorized: signer.PublicKey(),
		Interfaces: []guest.Interface{{MAC: p.find(`virtio-net-pci,netdev=net0,mac=([0-9a-f:]+)`), Name: "eth0", Address: address, Gateway: gateway}},
	}.Archive()
	p.check(err)
	p.check(os.WriteFile(p.path("seed"), seed, 0o600))
	p.check(os.WriteFile(p.path("key"), pem.EncodeToMemory(private), 0o600))
	p.disk = fmt.Sprintf("-kernel %s -initrd %s -append 'console=ttyS0 quiet panic=-1 net.ifnames=0 mitigations=off no_timer_check' "+
		"-serial file:%s -fw_cfg name=opt/unnest/seed,file=%s -drive file=%s,if=virtio,format=raw,snapshot=on",
		image.Kernel, image.Initrd, p.path("console"), p.path("seed"), image.Root)
}

// find returns what the only group of a pattern matches in the blocks.
func (p *page) find(pattern string) string {
	p.t.Helper()
	for _, b := range p.blocks {
		if m := regexp.MustCompile(pattern).FindStringSubmatch(b.text); m != nil {
			return m[1]
		}
	}
	p.t.Fatalf("docs/brfusion.md has no block with %s", pattern)
	return ""
}

// adapt replaces the accelerator and the disk in the command that starts the VM.
func (p *page) adapt(script string) string {
	p.t.Helper()
	if !strings.Contains(script, "qemu-system-x86_64 ") {
		return script
	}
	accel, err := guest.ChooseAccel("")
	p.check(err)
	replace := map[string]string{"-drive file=/srv/vms/node1.img,if=virtio,format=raw": p.disk}
	if accel.Accel == guest.TCG {
		replace["-accel kvm -cpu host"] = "-accel tcg,thread=multi -cpu max"
	}
	for old, replacement := range replace {
		if !strings.Contains(script, old) {
			p.t.Fatalf("the command that starts the VM does not contain %q: %s", old, script)
		}
		script = strings.ReplaceAll(script, old, replacement)
	}
	return script
}

//go:embed testdata/page-host.sh
var pageHost string

// startHost starts the host. Its processes end with the test.
func (p *page) startHost() {
	p.t.Helper()
	source, err := filepath.Abs("../..")
	p.check(err)
	for _, name := range []string{"bin", "deploy"} { // the commands write into the working directory
		p.check(os.Symlink(filepath.Join(source, name), p.path(name)))
	}
	log, err := os.Create(p.path("host.log"))
	p.check(err)
	defer log.Close()
	cmd := exec.Command("bash", "-e", "-c", pageHost, "host", p.dir)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL,
	}
	started, ended := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // Pdeathsig is sent when this thread ends
		defer close(ended)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	p.check(<-started)
	p.pid = cmd.Process.Pid
	p.t.Cleanup(func() {
		if p.t.Failed() {
			for _, name := range []string{"host.log", "hostd.log", "console"} {
				text, _ := os.ReadFile(p.path(name))
				p.t.Logf("end of %s:\n%s", name, text[max(0, len(text)-3000):])
			}
		}
		_ = cmd.Process.Kill()
		<-ended
	})
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(p.path("ready")); err == nil {
			return
		}
		if time.Since(begin) > time.Minute {
			p.t.Fatal("the host does not start")
		}
	}
}

// run executes a script on the host, which must succeed, and returns its output.
func (p *page) run(script string) string {
	p.t.Helper()
	begin := time.Now()
	out, err := p.try(script)
	p.t.Logf("%.1f s: %s\n%s", time.Since(begin).Seconds(), script, out)
	if err != nil {
		p.t.Fatalf("%s: %v", script, err)
	}
	return out
}

func (p *page) try(script string) (string, error) {
	ctx, cancel := context.WithTimeout(p.t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nsenter", "--target", fmt.Sprint(p.pid), "--mount", "--net", "--pid", "--wdns="+p.dir,
		"bash", "-e", "-o", "pipefail", "-c", script)
	cmd.WaitDelay = time.Minute
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// awaitVM waits until the VM answers, and starts its container engine.
func (p *page) awaitVM() {
	p.t.Helper()
	ssh := "ssh root@" + p.address + " "
	for begin := time.Now(); ; time.Sleep(200 * time.Millisecond) {
		out, err := p.try(ssh + "true")
		if err == nil {
			break
		}
		if time.Since(begin) > bootLimit {
			p.t.Fatalf("the VM does not answer: %v: %s", err, out)
		}
	}
	p.run(ssh + "-fNM >/dev/null 2>&1") // the connection of all later commands
	// The image has a plugin and an image already. The page installs the one, and the
	// reader's VM gets the other from a registry. It also has an init with this command.
	p.run(ssh + "'ln -s busybox /bin/poweroff; rm /usr/lib/cni/brfusion; /etc/unnest/engine 2>/dev/null; nerdctl tag localhost/unnest/tools:1 docker.io/library/busybox:latest'")
}

// attack attacks the page's pod from the VM.
func (p *page) attack() {
	p.t.Helper()
	ownNICAttack{
		t: p.t, netns: fmt.Sprintf("/proc/%d/ns/net", p.pid), bridge: "br-unnest", nic: "eth0",
		guest: func(script, stdin string) (string, error) {
			return p.try(fmt.Sprintf("ssh root@%s '%s' <<'END'\n%s\nEND", p.address, script, stdin))
		},
		own: netip.MustParseAddr(p.address), pods: netip.MustParseAddr("10.201.1.1"),
	}.run()
}

// traces lists what the page's commands may leave: interfaces, rules, processes and files.
func (p *page) traces() string {
	p.t.Helper()
	return p.run("ip -o link | cut -d: -f2; nft list ruleset; all=$(cat /proc/[0-9]*/comm); sort -u <<<\"$all\"; ls; " +
		"find over/*/upper -iname '*unnest*' -o -name node1'*' | sort")
}

func (p *page) path(name string) string { return filepath.Join(p.dir, name) }

func (p *page) check(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}
