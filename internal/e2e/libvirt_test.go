package e2e

import (
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/hostapi/medium"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/netdev/tap"
	"unnest.io/unnest/internal/testbed/fleet"
	"unnest.io/unnest/internal/testbed/guest"
	"unnest.io/unnest/internal/testbed/lab"
	"unnest.io/unnest/internal/testbed/place"
	"unnest.io/unnest/internal/vmm/libvirt/libvirttest"
)

// A domain of a real libvirtd is a guest. It gets its credentials and its pods' NICs through
// libvirt, and keeps them when the daemon is killed.
func TestLibvirt(t *testing.T) {
	const mac, tenantMAC, address, tenantAddress = "52:54:00:00:00:02", "52:54:00:00:00:03", "10.200.0.99", "10.201.0.99"
	const ports, own = 6, 2 // root ports of the domain, and those that its own NICs take
	var libvirtd *libvirttest.Daemon
	n := newNodes(t, func(f *fleet.Fleet) {
		libvirtd = libvirttest.Start(t, f.Lab.HostNS())
		f.Policy.Guests = []quota.Guest{{
			Name: "domain", Tenant: fleet.Tenant, Index: 77, Pool: 1, Addresses: []netip.Addr{netip.MustParseAddr(tenantAddress)},
			Libvirt: &quota.Domain{Socket: libvirtd.Socket, Domain: "domain"}, Credentials: quota.CredentialsVMM,
		}}
	})
	out := t.TempDir()
	_, hostKey, err := ed25519.GenerateKey(rand.Reader)
	n.check(err)
	_, login, err := ed25519.GenerateKey(rand.Reader)
	n.check(err)
	signer, err := ssh.NewSignerFromKey(login)
	n.check(err)
	seed, err := guest.Seed{
		Hostname: "domain", HostKey: hostKey, Authorized: signer.PublicKey(),
		Interfaces: []guest.Interface{
			{MAC: mac, Name: "mgmt", Address: address + "/24"}, {MAC: tenantMAC, Name: "eth0", Address: tenantAddress + "/16", Gateway: lab.TenantGateway},
		},
	}.Archive()
	n.check(err)
	path := filepath.Join(out, "seed")
	n.check(os.WriteFile(path, seed, 0o600))
	n.check(lab.Do(n.fleet.Lab.HostNS(), func() error {
		for name, bridge := range map[string]string{"lvmgmt": lab.ManagementBridge, "lvtenant": lab.TenantBridge} {
			f, err := tap.Open(tap.Device{Name: name, Bridge: bridge, MTU: lab.MTU, Persistent: true})
			if err != nil {
				return err
			}
			f.Close()
		}
		return nil
	}))
	libvirtd.Boot(libvirttest.Domain{
		Name: "domain", Kernel: n.image.Kernel, Initrd: n.image.Initrd, Root: n.image.Root, Seed: path,
		Command: "console=ttyS0 quiet panic=-1 net.ifnames=0", Ports: ports,
		NICs:  []libvirttest.NIC{{TAP: "lvmgmt", MAC: mac}, {TAP: "lvtenant", MAC: tenantMAC}},
		Drive: "sata",
	})
	key, err := ssh.NewPublicKey(hostKey.Public())
	n.check(err)
	m := &node{nodes: n, Node: &fleet.Node{Guest: &guest.Guest{Config: guest.Config{Name: "domain"}}}}
	n.eventually("the domain answers", func() bool {
		m.ssh, err = place.DialSSH(t.Context(), "domain", address+":22", n.fleet.Lab.Dial, guest.ClientConfig(signer, key))
		return err == nil
	})
	t.Cleanup(func() { m.ssh.Close() })

	// Its credentials come through libvirt. The guest's kernel has no driver for CD-ROM drives, so
	// the test reads what QEMU has opened. TestKubernetes reads such a medium in a guest.
	var c medium.Content
	n.eventually("the medium is in the drive", func() (ok bool) {
		c, ok = domainMedium(t, filepath.Base(n.fleet.Lab.Dir)+"/media/")
		return ok
	})
	for name, content := range map[string][]byte{identity.CAFile: c.CA, identity.CertificateFile: c.Certificate, identity.KeyFile: c.Key} {
		m.run(fmt.Sprintf("mkdir -p /etc/unnest && (umask 077; printf %%s '%s' >/etc/unnest/%s)", content, name))
	}
	m.run("/usr/lib/cni/brfusion renew -server " + c.Server.String())
	n.eventually("the key that was in the drive is superseded, and the medium replaced", func() bool {
		log, err := os.ReadFile(filepath.Join(n.fleet.Lab.Dir, "hostd.log"))
		n.check(err)
		return strings.Count(string(log), "hand over credentials") >= 2
	})
	media, err := os.ReadDir(filepath.Join(n.fleet.Lab.Dir, "media"))
	if err != nil || len(media) > 0 {
		t.Errorf("media left: %v, error %v", media, err)
	}

	if s := n.guestStatus("domain"); s.Slots != ports || s.SlotsForeign != own || s.SlotsQuarantined != 0 || s.SlotsFree+s.Pool != ports-own {
		t.Errorf("got %+v, want %d slots, %d with the domain's own NICs, and the others free or with NICs of the pool", s, ports, own)
	}
	first := m.pod("p1", nil)[0]
	m.wantReach("p1", gateway, true)
	ownNICAttack{
		t: t, netns: n.fleet.Lab.HostNS(), bridge: lab.TenantBridge, nic: "eth0", guest: m.try, own: netip.MustParseAddr(tenantAddress), pods: first,
	}.run()
	n.eventually("the pool is full", func() bool { return n.guestStatus("domain").Pool == 1 })
	n.killDaemon()
	n.startDaemon()
	second := m.pod("p2", nil)[0]
	m.wantReach("p2", first, true)
	m.wantReach("p1", second, true)
	if s := n.guestStatus("domain"); s.Attachments != 2 {
		t.Errorf("got %d attachments, want 2", s.Attachments)
	}
	if _, err := m.brfusion("DEL", "p1", nil); err != nil {
		t.Error(err)
	}
	m.wantReach("p2", gateway, true)
	m.pod("p3", map[string]any{"mode": "trunk"})
	m.wantReach("p3", gateway, true)

	// No pod gets a port of the domain's own NICs.
	m.pod("p4", nil)
	m.pod("p5", nil)
	m.run("ip netns add p6")
	_, err = m.brfusion("ADD", "p6", nil)
	wantCode(t, "ADD without a free port", err, 11, "domain domain has 0 free root ports: add <controller type='pci' model='pcie-root-port'/>")
	wantCode(t, "ADD without a free port", err, 11, "no free NIC slot of 6 (2 with other devices")
	if s := n.guestStatus("domain"); s.SlotsForeign != own || s.SlotsQuarantined != 0 || s.SlotsFree+s.Pool != 0 {
		t.Errorf("got %+v, want no slot free, and %d with the domain's own NICs", s, own)
	}

	// A stopped domain has no attachments and leaves no TAP.
	libvirtd.Virsh("destroy", "domain")
	n.eventually("the attachments are gone", func() bool {
		links := mustRun(t, "nsenter", "--net="+n.fleet.Lab.HostNS(), "ip", "-o", "link")
		taken := 0
		for _, tenant := range n.status().Tenants {
			taken += tenant.Attachments + tenant.AddressesInUse
		}
		return taken == 0 && !hasPort(links)
	})
	n.eventually("libvirtd has noticed the end", func() bool { return strings.TrimSpace(libvirtd.Virsh("list", "--name")) == "" })
}

// domainMedium returns the content of the medium in a directory that a process has open, if there is
// one. The file itself may be removed.
func domainMedium(t *testing.T, dir string) (medium.Content, bool) {
	t.Helper()
	open, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range open {
		target, err := os.Readlink(path)
		if err != nil || !strings.Contains(target, dir) {
			continue
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		c, err := medium.Decode(f)
		if err != nil {
			t.Fatal(err)
		}
		return c, true
	}
	return medium.Content{}, false
}
