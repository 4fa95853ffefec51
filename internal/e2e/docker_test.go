package e2e

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/testbed/fleet"
	"unnest.io/unnest/internal/testbed/image"
	"unnest.io/unnest/internal/testbed/lab"
)

// dockerPackages are the Debian packages of a guest with Docker and Podman. Docker needs AppArmor's parser, which docker.io recommends.
var dockerPackages = []string{"docker.io", "apparmor", "docker-compose", "podman", "nftables", "systemd"}

// dockerRelease is the release of Debian in the guests, by UNNEST_RELEASE, and the mark in docs/docker.md of what is for its Podman.
// Debian 13 has the command docker in another package than dockerd, and what connects containers of Podman in one of its own.
func dockerRelease() (release, podman string, packages []string) {
	if release = cmp.Or(os.Getenv("UNNEST_RELEASE"), image.Bookworm); release == image.Trixie {
		return release, "podman5", append(slices.Clone(dockerPackages), "docker-cli", "netavark")
	}
	return release, "podman4", dockerPackages
}

// systemdFiles make systemd the first process of a guest in place of busybox, after the guest's own boot script.
var systemdFiles = map[string]string{
	"/etc/inittab":                         "::sysinit:/etc/unnest/boot\n::wait:/bin/kill -QUIT 1\n::restart:/lib/systemd/systemd\n",
	"/etc/machine-id":                      "0123456789abcdef0123456789abcdef\n", // without one, systemd enables all units
	"/etc/systemd/system/default.target":   "[Unit]\nRequires=multi-user.target dropbear.service\nAfter=multi-user.target\n",
	"/etc/systemd/system/dropbear.service": "[Service]\nExecStart=/usr/sbin/dropbear -F -R -s -B\nKillMode=process\n",
}

// maskedUnits only take time, or belong to packages that other tests need.
var maskedUnits = []string{
	"timers.target", "getty.target", "apparmor.service", "nginx.service", "memcached.service", "systemd-logind.service", "systemd-udevd.service",
	"systemd-udevd-control.socket", "systemd-udevd-kernel.socket", "systemd-udev-trigger.service", "systemd-update-utmp.service",
	"systemd-update-utmp-runlevel.service", "systemd-sysusers.service", "systemd-binfmt.service", "systemd-journal-flush.service",
	"systemd-random-seed.service", "e2scrub_reap.service",
}

// dockerImage builds the image of a guest with Docker, Compose and systemd. The home directory of root has the files of this
// source tree that docs/docker.md names.
func dockerImage(n *nodes) image.Image {
	n.t.Helper()
	b := image.Builder{
		Cache:    image.CacheDir(),
		Files:    map[string]string{"/root/unnest-cni": filepath.Join(n.binaries, "unnest-cni")},
		Contents: map[string][]byte{},
		Progress: func(step string) { n.t.Log(step) },
	}
	for path, content := range systemdFiles {
		b.Contents[path] = []byte(content)
	}
	for _, unit := range maskedUnits {
		b.Contents["/etc/systemd/system/"+unit] = nil
	}
	for to, path := range map[string]string{
		"unnest-docker.socket": "deploy/systemd/unnest-docker.socket", "unnest-docker.service": "deploy/systemd/unnest-docker.service",
		"examples/compose.yaml": "examples/compose.yaml", "examples/quadlet/pods.network": "examples/quadlet/pods.network",
		"examples/quadlet/web.container": "examples/quadlet/web.container",
	} {
		content, err := os.ReadFile("../../" + path)
		n.check(err)
		// The daemon of a lab listens on its network for the management of guests.
		b.Contents["/root/"+to] = []byte(strings.Replace(string(content), "10.201.0.1:7443", daemonAddress, 1))
	}
	release, _, packages := dockerRelease()
	recipe, err := image.DefaultRecipe().With(packages...).Of(release)
	n.check(err)
	i, err := b.Build(n.t.Context(), recipe)
	n.check(err)
	return i
}

// standIns makes images of busybox with the names that docs/docker.md and examples/compose.yaml have, because a guest reaches no registry.
const standIns = `
set -e
mkdir -p /tmp/i/bin /tmp/i/etc /tmp/i/tmp
cp /bin/busybox /tmp/i/bin/
echo 'hosts: files dns' >/tmp/i/etc/nsswitch.conf # without it, names make the static busybox look for shared libraries, and crash
for applet in cat hostname httpd ls mkdir ping sh sleep wget; do ln -s busybox /tmp/i/bin/$applet; done
tar -C /tmp/i -c . | docker import - busybox
tar -C /tmp/i -c . | docker import -c 'CMD ["sh", "-c", "mkdir /www; echo hello from $(hostname) >/www/index.html; trap exit TERM; httpd -f -p 80 -h /www & wait"]' - nginx
docker tag busybox busybox:1.36
docker tag nginx nginx:1.27
docker tag nginx server-image
rm -r /tmp/i
`

// dockerHosts are two guests with Docker.
type dockerHosts struct {
	*nodes
	whole *testing.T // without one of its parts, in which t is that of the part
	in    map[string]*node
	links map[string]string // of a guest, before the first container
	web   string            // address of the container with this name
}

func newDockerHosts(t *testing.T) *dockerHosts {
	t.Helper()
	n := newNodes(t, nil)
	n.cold, n.image = true, dockerImage(n)
	d := &dockerHosts{nodes: n, whole: t, in: map[string]*node{}, links: map[string]string{}}
	for _, m := range n.bootAll(2, fleet.Options{Slots: 8, Memory: 3 << 29}) {
		d.in[m.Name] = m
		d.dockerRuns(m)
		d.links[m.Name] = m.run("ls /sys/class/net")
		m.run(standIns)
	}
	return d
}

func (d *dockerHosts) dockerRuns(m *node) {
	d.t.Helper()
	d.within(bootLimit, "dockerd answers in "+m.Name, func() bool { _, err := m.try("docker version", ""); return err == nil })
}

// follow runs a block of the page, and wants the output that outputs says.
func (d *dockerHosts) follow(b block) {
	d.t.Helper()
	place, _, _ := strings.Cut(b.mark, " ")
	if _, podman, _ := dockerRelease(); strings.HasPrefix(place, "podman") && place != "podman" && place != podman {
		return
	}
	switch {
	case strings.Contains(b.text, "podman run -d"):
		d.in["node1"].run("docker save nginx busybox | podman load && podman tag nginx docker.io/library/nginx:1.27")
	case strings.Contains(b.text, "systemctl stop web"):
		d.answers("the unit's container", "", func() (string, error) { _, err := d.get("http://" + d.web + "/"); return "", err })
		if got := d.guestStatus("node1").Attachments; got != 1 {
			d.t.Errorf("the unit's container runs, and node1 has %d NICs", got)
		}
	}
	out := d.execute(b)
	for text, want := range outputs {
		if strings.Contains(b.text, text) && !strings.Contains(out, want) {
			d.t.Errorf("%s: want %q in its output, got %s", b.text, want, out)
		}
	}
	if lines := strings.Fields(out); strings.Contains(b.text, " inspect -f ") && len(lines) > 0 {
		d.web = lines[len(lines)-1]
	}
}

// execute runs a block of the page where its mark says: in node1, in node2, in both or on the host. It returns the output.
func (d *dockerHosts) execute(b block) (out string) {
	d.t.Helper()
	if b.mark == "host" {
		return mustRun(d.t, append(strings.Fields(strings.Replace(b.text, "unnest", filepath.Join(d.binaries, "unnest"), 1)), "--state", d.fleet.Lab.Dir)...)
	}
	script := strings.NewReplacer("apt-get install docker.io", "docker --version", "apt-get install podman", "podman --version #", "10.201.0.1:7443", daemonAddress,
		"10.201.1.1", d.web, "KEY", "0123456789abcdef0123456789abcdef", "docker compose", "docker-compose").Replace(b.text)
	place, file, isFile := strings.Cut(b.mark, " ")
	if strings.HasPrefix(place, "podman") {
		place = "node1"
	}
	if isFile {
		d.check(d.in[place].ssh.Put(d.t.Context(), file, 0o644, strings.NewReader(script)))
		return ""
	}
	places := []string{place}
	if place == "both" {
		places = []string{"node1", "node2"}
	}
	for _, p := range places {
		for line := range strings.Lines(script) {
			begin, printed := time.Now(), ""
			if strings.Contains(line, "wget") || strings.Contains(line, "logs") { // the server may not listen yet
				d.eventually(p+": "+line, func() bool {
					var err error
					printed, err = d.in[p].try(line, "")
					return err == nil && strings.Contains(printed, "hello from ")
				})
			} else {
				printed = d.in[p].run(line)
			}
			d.t.Logf("%s, %.1f s: %s\n%s", p, time.Since(begin).Seconds(), strings.TrimSpace(line), printed)
			out += printed
		}
	}
	return out
}

// part runs a part of the test in the guests, in which it leaves no container, even if it fails.
func (d *dockerHosts) part(name string, run func()) {
	defer func() { d.t = d.whole }()
	d.whole.Run(name, func(t *testing.T) {
		d.t = t
		t.Cleanup(func() {
			for _, m := range d.in {
				if t.Failed() {
					d.t = d.whole // the context of t has ended
					out, _ := m.try(stateOfDocker+"\n"+withoutContainers, "")
					t.Logf("%s after the part:\n%s", m.Name, out)
				}
			}
		})
		run()
	})
}

// stateOfDocker is a script that prints what Docker and its driver say.
const stateOfDocker = "journalctl --no-pager -n 60 -u docker -u unnest-docker; docker ps -a; podman ps -a; ip -brief link"

// withoutContainers is a script that removes what a part that failed has left.
const withoutContainers = `docker ps -aq | xargs -r docker rm -f
podman rm -af
docker network ls --filter driver=unnest --format '{{.Name}}' | grep -vxE 'pods|shop' | xargs -r docker network rm`

// outputs is what the blocks of docs/docker.md print that have a text.
var outputs = map[string]string{
	"docker inspect":      "10.201.",
	"http://10.201":       "hello from ",
	"http://web/":         "hello from ",
	"hostd status":        "10.201.",
	"127.0.0.1":           "hello from ",
	"logs":                "hello from ",
	"network rm pods":     "pods",
	"network rm shop":     "shop",
	"podman run -d":       "10.201.",
	"podman run --rm":     "hello from ",
	"systemctl start web": "10.201.",
}

// Who follows docs/docker.md in two guests gets what it says, and a container stays reachable when Docker, the driver or the daemon
// ends, and comes back when the guest reboots. It took eight minutes on two processors with a load of 10 to 17. UNNEST_ROUNDS=100 starts
// as many containers, four at a time, in place of 8, and runs the localhost cases and Podman, too: 24 minutes more for the 100. UNNEST_RELEASE=trixie has Debian 13 in the guests, with Docker 26 and Podman 5, in place of Debian 12.
func TestDocker(t *testing.T) {
	blocks := marked(t, "../../docs/docker.md")
	for text := range outputs {
		if !slices.ContainsFunc(blocks, func(b block) bool { return strings.Contains(b.text, text) }) {
			t.Errorf("docs/docker.md has no block with %q", text)
		}
	}
	d := newDockerHosts(t)
	all := os.Getenv("UNNEST_ROUNDS") != ""
	var page []block // of the next part: those since the last one for both guests
	follow := func() {
		for _, b := range page {
			d.follow(b)
		}
	}
	for _, b := range blocks {
		if b.mark != "both" {
			page = append(page, b)
			continue
		}
		switch {
		case strings.Contains(b.text, "network rm pods"):
			d.part("Tutorial", follow)
			d.part("Faults", d.whileItRuns)
			d.part("Containers", d.manyContainers)
			d.part("Reboots", d.afterReboots)
		case strings.Contains(b.text, "network rm shop"):
			d.part("Hostlo", follow)
			if all {
				d.part("Localhost", d.localhostCases)
			}
		}
		page = nil
		d.follow(b)
	}
	if all {
		d.part("Podman", follow)
	}
	for name, m := range d.in {
		if out := m.run("docker network ls -q --filter driver=unnest; docker ps -aq; podman ps -aq"); out != "" {
			d.t.Errorf("%s still has networks or containers: %s", name, out)
		}
		d.nothingLeft(m)
	}
}

// nothingLeft wants that a guest without containers has no NICs.
func (d *dockerHosts) nothingLeft(m *node) {
	d.t.Helper()
	d.eventually(m.Name+" has given its NICs back", func() bool {
		return d.guestStatus(m.Name).Attachments == 0 && m.run("ls /sys/class/net") == d.links[m.Name]
	})
}

// whileItRuns ends Docker, the driver and the daemon while a container runs.
func (d *dockerHosts) whileItRuns() {
	m := d.in["node1"]
	m.run("docker run -d --name lasting --hostname lasting --network pods --restart always nginx")
	d.served("the host", "lasting")
	m.run("docker exec lasting ping -c1 -W10 " + lab.TenantGateway)
	for _, tt := range []struct {
		name string
		do   func()
	}{
		{"dockerd is restarted", func() { m.run("systemctl restart docker") }},
		{"dockerd is killed", func() { m.run("systemctl kill -s KILL docker") }},
		{"the driver is killed", func() { m.run("systemctl kill -s KILL unnest-docker") }},
		{"the daemon is killed", func() { d.killDaemon(); d.startDaemon() }},
	} {
		tt.do()
		d.dockerRuns(m)
		d.served(tt.name, "lasting")
	}
	d.stolenCredentials(m)
	// Compose removes what it has not finished to create.
	m.run(`cd examples
docker-compose up -d >/tmp/up 2>&1 & up=$!
until [ -n "$(docker ps -aq --filter name=web)" ] || ! kill -0 $up; do :; done
docker-compose down
wait
docker-compose down`)
	if got := m.run("docker ps -a --format '{{.Names}}'; docker network ls --filter driver=unnest --format '{{.Name}}'"); got != "lasting\npods\n" {
		d.t.Errorf("docker-compose down during up leaves %s", got)
	}
	m.run("docker rm -f lasting")
	d.nothingLeft(m)
}

// manyContainers starts UNNEST_ROUNDS containers, four at a time, next to one that lasts.
func (d *dockerHosts) manyContainers() {
	m := d.in["node1"]
	m.run("docker run -d --name lasting --hostname lasting --network pods nginx")
	d.served("before them", "lasting")
	const configuration = "ip -brief link; ip route; nft -s list ruleset 2>/dev/null" // it warns of the rules of iptables
	before := m.run(configuration)
	runs, err := strconv.Atoi(cmp.Or(os.Getenv("UNNEST_ROUNDS"), "8"))
	d.check(err)
	begin, said, out := time.Now(), 0, new(output)
	out.written = func() {
		if ended := strings.Count(out.String(), "\n"); ended/10 > said/10 {
			said = ended
			d.t.Logf("%d of %d containers have ended after %.0f s", ended, runs, time.Since(begin).Seconds())
		}
	}
	_, err = m.execute(d.t.Context(), out, fmt.Sprintf("seq %d | xargs -P4 -I{} sh -c 'docker run --rm --network pods busybox ping -c1 -W10 %s >/tmp/run.{} 2>&1 && echo served || echo $(cat /tmp/run.{})'",
		runs, lab.TenantGateway), "")
	d.check(err)
	d.t.Logf("%d containers, four at a time: %.1f s", runs, time.Since(begin).Seconds())
	if got := out.String(); got != strings.Repeat("served\n", runs) {
		d.t.Errorf("%d containers, four at a time: %s", runs, strings.ReplaceAll(got, "served\n", ""))
	}
	d.eventually("node1 has the NIC of the lasting container only", func() bool { return d.guestStatus("node1").Attachments == 1 })
	if after := m.run(configuration); after != before {
		d.t.Errorf("links, routes and packet filters of node1 were\n%s\nand are\n%s", before, after)
	}
	d.served("after them", "lasting")
	m.run("docker rm -f lasting")
	d.nothingLeft(m)
}

// stolenCredentials gives containers the credentials of their guest. They cannot use them, though the guest can.
func (d *dockerHosts) stolenCredentials(m *node) {
	for _, network := range []string{"pods", "bridge", "host"} {
		out, err := m.try("docker run --rm --network "+network+" -v /root/unnest-cni:/unnest-cni -v /etc/unnest:/credentials busybox "+
			"/unnest-cni renew -server="+daemonAddress+" -credentials=/credentials", "")
		if refused := err != nil && strings.Contains(out, "renew certificate: host daemon: "); refused != (network != "host") {
			d.t.Errorf("a container in network %s uses the credentials of its guest: %v, %s", network, err, out)
		}
	}
}

// localhostCases runs the localhost cases in a container of each guest, in one Hostlo network.
func (d *dockerHosts) localhostCases() {
	p := &splitPod{nodes: d.nodes, in: []*node{d.in["node1"], d.in["node2"]}}
	for _, m := range p.in {
		m.put("unnest-localhost")
		m.run("docker run -d --network shop --name " + podName + " busybox sleep infinity && ip netns attach " + podName + " $(docker inspect -f '{{.State.Pid}}' " + podName + ")")
		d.eventually(m.Name+" is in the segment", func() bool {
			_, err := m.try("grep '\"Joined\":true' /run/unnest/docker/sandboxes/*", "") // the driver joins after "docker run"
			return err == nil
		})
	}
	p.oneLocalhost(d.t)
	p.bindConflicts(d.t)
	for _, m := range p.in {
		m.run("ip netns delete " + podName + "; docker rm -f " + podName)
	}
}

// afterReboots reboots node1 in order, and resets it, while containers run that Docker restarts: one with any address and a published port, one
// with an address of its own, and one that shares its localhost with a container of node2.
func (d *dockerHosts) afterReboots() {
	const segment = "docker network create -d unnest --ipam-driver null -o segment=reboots -o key=0123456789abcdef0123456789abcdef reboots"
	const always = "docker run -d --restart always --name %[1]s --hostname %[1]s --network %[2]s nginx"
	const address, mac = "10.201.222.7", "02:42:0a:c9:de:07"
	m, peer := d.in["node1"], d.in["node2"]
	m.run("docker network create -d unnest --ipam-driver unnest --subnet 10.201.0.0/16 chosen")
	m.run(fmt.Sprintf(always, "any", "pods -p 8081:80"))
	m.run(fmt.Sprintf(always, "fixed", "chosen --mac-address "+mac+" --ip "+address))
	for _, one := range []*node{m, peer} {
		one.run(segment)
	}
	m.run(fmt.Sprintf(always, "server", "reboots"))
	peer.run("docker run -d --name client --network reboots busybox sleep infinity")
	check := func(when string) {
		d.served(when, "any")
		d.answers(when+": fixed", "hello from fixed\n", func() (string, error) { return d.get("http://" + address + "/") })
		d.answers(when+": the published port", "hello from any\n", func() (string, error) { return d.get("http://" + m.TenantIP + ":8081/") })
		d.answers(when+": the segment", "hello from server\n", func() (string, error) { return peer.try("docker exec client wget -qO- http://127.0.0.1/ 2>&1", "") })
		if got := m.run("docker ps -q | wc -l; docker inspect -f '{{.NetworkSettings.Networks.chosen.IPAddress}}' fixed; docker exec fixed cat /sys/class/net/eth0/address"); got != "3\n"+address+"\n"+mac+"\n" {
			d.t.Errorf("%s: containers, and the addresses of fixed: %s", when, got)
		}
		d.eventually(when+": node1 has the NICs of its containers only", func() bool { return d.guestStatus("node1").Attachments == 3 })
	}
	check("before the reboots")
	for _, tt := range []struct {
		when string
		do   func()
	}{
		{"node1 has rebooted", func() { m.run("systemctl reboot") }},
		{"node1 was reset", func() { d.check(m.reset()) }},
	} {
		before, err := m.bootID()
		d.check(err)
		d.check(m.rebootsInPlace())
		tt.do()
		part := d.t
		d.t = d.whole // the connection outlives the part
		m, err = m.rebooted(before)
		d.t = part
		d.check(err)
		d.in["node1"] = m
		d.dockerRuns(m)
		check(tt.when)
	}
	m.run("docker rm -f any fixed server; docker network rm chosen reboots")
	peer.run("docker rm -f client; docker network rm reboots")
	d.nothingLeft(m)
	d.nothingLeft(peer)
}

// answers wants an answer within the time that a boot may take.
func (d *dockerHosts) answers(what, want string, ask func() (string, error)) {
	d.t.Helper()
	begin, last := time.Now(), ""
	defer func() { d.t.Logf("%s answers after %.1f s: %s", what, time.Since(begin).Seconds(), last) }()
	d.within(bootLimit, what+" answers", func() bool {
		got, err := ask()
		last = fmt.Sprintf("%q, %v", got, err)
		return err == nil && got == want
	})
}

// get returns what a web server sends to the host.
func (d *dockerHosts) get(url string) (string, error) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DialContext: d.fleet.Lab.Dial, DisableKeepAlives: true}}
	answer, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	page, err := io.ReadAll(answer.Body)
	return string(page), err
}

// served wants that the host reaches a container of node1 by the address that Docker shows.
func (d *dockerHosts) served(when, name string) {
	d.t.Helper()
	d.answers(when+": "+name, "hello from "+name+"\n", func() (string, error) {
		out, err := d.in["node1"].try("docker inspect -f '{{.NetworkSettings.Networks.pods.IPAddress}}' "+name, "")
		if address := strings.TrimSpace(out); err != nil || address == "" {
			return out, cmp.Or(err, errors.New("it has no address"))
		}
		return d.get("http://" + strings.TrimSpace(out) + "/")
	})
}
