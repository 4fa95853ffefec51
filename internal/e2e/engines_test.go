package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unnest/internal/testbed/fleet"
	"unnest/internal/testbed/image"
)

// enginesImage builds a guest image with Docker and Podman of its Debian, and our programs.
func enginesImage(t *testing.T, binaries string) image.Image {
	t.Helper()
	program := filepath.Join(binaries, "unnest-cni")
	b := image.Builder{
		Cache:    image.CacheDir(),
		Files:    map[string]string{"/usr/local/bin/unnest-cni": program, "/usr/lib/cni/brfusion": program, "/usr/lib/cni/hostlo": program},
		Progress: func(step string) { t.Log(step) },
	}
	built, err := b.Build(t.Context(), image.DefaultRecipe().With("docker.io", "podman"))
	if err != nil {
		t.Fatal(err)
	}
	return built
}

// engines are two guests with Docker and Podman, whose init is not systemd.
func engines(t *testing.T) (n *nodes, first, second *node) {
	t.Helper()
	n = newNodes(t, nil)
	n.image, n.cold = enginesImage(t, n.binaries), true
	all := n.bootAll(2, fleet.Options{Slots: 8})
	return n, all[0], all[1]
}

const startDriver = `setsid unnest-cni docker-driver -v -interval 20s -server ` + daemonAddress + ` >>/var/log/driver.log 2>&1 </dev/null & echo $! >/run/driver.pid`

const startDocker = `
	modprobe -a overlay veth bridge br_netfilter nf_tables nft_compat nft_chain_nat nf_nat \
		xt_MASQUERADE xt_comment xt_mark xt_multiport xt_addrtype xt_conntrack xt_tcpudp
	rm -f /run/docker.pid /var/run/docker.pid
	setsid dockerd >>/var/log/dockerd.log 2>&1 </dev/null & echo $! >/run/dockerd.pid
	until docker version >/dev/null 2>&1; do sleep 0.2; done`

// docker starts the driver and Docker in a guest, with the image "box".
func (m *node) docker() {
	m.nodes.t.Helper()
	m.nodes.t.Cleanup(func() {
		if m.nodes.t.Failed() {
			out, _ := m.try("for f in driver dockerd; do echo $f:; tail -n 60 /var/log/$f.log | cut -c1-400; done", "")
			m.nodes.t.Logf("logs of %s:\n%s", m.Name, out)
		}
	})
	m.run(startDriver)
	m.run(startDocker)
	m.run("docker load -q -i $(ls /usr/share/unnest/images/*.tar | head -n 1) && docker tag " + image.ContainerImage + " box")
}

const serveHello = `sh -c 'mkdir -p /tmp/w && echo hello from $HOSTNAME >/tmp/w/index.html && exec busybox httpd -f -p 80 -h /tmp/w'`

// onHost gets a page from the host.
func (n *nodes) onHost(address, want string) {
	n.t.Helper()
	n.eventually("http://"+address+" answers "+want, func() bool {
		out, err := exec.Command("nsenter", "--net="+n.fleet.Lab.HostNS(), "curl", "-sSf", "-m", "10", "http://"+address+"/").CombinedOutput()
		return err == nil && strings.TrimSpace(string(out)) == want
	})
}

// attachments is how many NICs and endpoints all guests have.
func (n *nodes) attachments() (count int) {
	for _, tenant := range n.status().Tenants {
		count += tenant.Attachments
	}
	return count
}

func (n *nodes) wantNothingAttached() {
	n.t.Helper()
	n.eventually("all NICs are given back", func() bool { return n.attachments() == 0 })
}

// Docker's containers in two guests have NICs of the host, and share the localhost of a Hostlo network.
func TestDocker(t *testing.T) {
	n, first, second := engines(t)
	for _, m := range []*node{first, second} {
		m.docker()
		m.run("docker network create -d unnest --ipam-driver unnest --subnet 10.201.0.0/16 pods")
	}
	address := func(m *node, container string) string {
		return strings.TrimSpace(m.run("docker inspect -f '{{.NetworkSettings.Networks.pods.IPAddress}}' " + container))
	}
	run := func(m *node, name, options string) {
		t.Helper()
		m.run(fmt.Sprintf("docker run -d --name %s --hostname %s --network pods %s box %s", name, name, options, serveHello))
	}
	run(first, "web", "-p 8080:80 --restart always")
	n.onHost(address(first, "web"), "hello from web")
	own := strings.Fields(first.run("ip -4 -o addr show dev eth0"))[3]
	n.onHost(strings.Split(own, "/")[0]+":8080", "hello from web")
	if got, mac := first.run("docker inspect -f '{{with .NetworkSettings.Networks.pods}}{{.Gateway}} {{.MacAddress}}{{end}}' web"),
		first.run("docker exec web cat /sys/class/net/eth0/address"); strings.TrimSpace(got) != "10.201.0.1 "+strings.TrimSpace(mac) {
		t.Errorf("docker inspect has %s, the container %s", got, mac)
	}
	second.run("docker run --rm --network pods box wget -qO- http://" + address(first, "web") + "/")
	first.run("docker run --rm --network pods box wget -qO- http://web/") // by Docker's DNS
	first.run("docker run -d --name late box sleep 100000 && docker network connect pods late && docker exec late ping -c1 -w20 web")
	first.run("docker network disconnect pods late && docker rm -f late")
	first.run("docker network create other && docker network connect other web && docker run --rm --network other box wget -qO- http://web/")
	n.onHost(address(first, "web"), "hello from web")
	first.run("docker network disconnect other web && docker network rm other")

	run(second, "fixed", "--ip 10.201.254.9")
	n.onHost("10.201.254.9", "hello from fixed")
	second.run("docker stop -t1 fixed && docker start fixed")
	n.onHost("10.201.254.9", "hello from fixed")

	t.Log("kill the driver, dockerd and the daemon under running containers")
	first.run("kill -9 $(cat /run/driver.pid)")
	first.run(startDriver)
	first.run("docker run --rm --network pods box ping -c1 -w20 10.201.254.9")
	n.killDaemon()
	n.startDaemon()
	first.run("docker run --rm --network pods box ping -c1 -w20 10.201.254.9")
	first.run("kill -9 $(cat /run/dockerd.pid)")
	first.run(startDocker)
	n.eventually("the container with --restart always is back", func() bool {
		out, err := first.try("docker exec web wget -qO- http://10.201.254.9/", "")
		return err == nil && strings.Contains(out, "hello from fixed")
	})
	n.onHost(strings.Split(own, "/")[0]+":8080", "hello from web")
	first.run("docker rm -f web")
	second.run("docker rm -f fixed")
	n.wantNothingAttached()

	t.Log("100 containers, four at a time")
	begin := time.Now()
	out := first.run(`seq 100 | xargs -P4 -I{} sh -c 'docker run --rm --network pods box ping -c1 -w30 10.201.0.1 >/tmp/run.{} 2>&1 || { echo failed: {}; cat /tmp/run.{}; }'`)
	if out != "" {
		t.Errorf("of 100 containers some failed: %s", out)
	}
	t.Logf("took %.0f s", time.Since(begin).Seconds())
	n.wantNothingAttached()

	t.Log("a Hostlo network")
	for _, m := range []*node{first, second} {
		m.run("docker network create -d unnest --ipam-driver null -o segment=shop -o key=0123456789abcdef0123 shop")
		m.run("docker run -d --name part --network shop box sleep 100000")
	}
	first.run("docker exec -d part " + serveHello)
	n.eventually("the containers share one localhost", func() bool {
		out, err := second.try("docker exec part wget -qO- http://127.0.0.1/", "")
		return err == nil && strings.Contains(out, "hello from")
	})
	for _, m := range []*node{first, second} {
		m.run("docker rm -f part && docker network rm shop pods")
	}
	n.wantNothingAttached()
	for _, m := range []*node{first, second} {
		if left := m.run("find /run/unnest/docker /var/lib/unnest/docker -type f"); left != "" {
			t.Errorf("%s has files left: %s", m.Name, left)
		}
	}
}

// Podman of Debian 12 uses the CNI plugin.
func TestPodman(t *testing.T) {
	n, first, second := engines(t)
	for _, m := range []*node{first, second} {
		m.run(`printf '[network]\nnetwork_backend = "cni"\ncni_plugin_dirs = ["/usr/lib/cni"]\n' >/etc/containers/containers.conf`)
		m.run(`mkdir -p /etc/cni/net.d && cat >/etc/cni/net.d/pods.conflist <<'END'
{"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "brfusion", "server": "` + daemonAddress + `", "ipam": {"type": "hostd"},
 "capabilities": {"ips": true, "mac": true, "portMappings": true}}]}
END`)
		m.run("podman load -q -i $(ls /usr/share/unnest/images/*.tar | head -n 1) && podman tag " + image.ContainerImage + " box")
	}
	first.run("podman run -d --name web --hostname web --network pods --ip 10.201.254.8 box " + serveHello)
	n.onHost("10.201.254.8", "hello from web")
	second.run("podman run --rm --network pods box wget -qO- http://10.201.254.8/")
	first.run("podman stop -t1 web && podman start web")
	n.onHost("10.201.254.8", "hello from web")
	first.run("podman rm -f -t1 web")
	n.wantNothingAttached()
}
