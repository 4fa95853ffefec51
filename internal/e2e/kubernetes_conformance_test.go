//go:build kubernetes

package e2e

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/testbed/cluster"
	"unnest.io/unnest/internal/testbed/oci"
)

// The images of upstream's tests, of Kubernetes 1.34, for which we have stand-ins.
const (
	agnhostImage = "registry.k8s.io/e2e-test-images/agnhost:2.56"
	busyboxImage = "registry.k8s.io/e2e-test-images/busybox:1.37.0-1"
)

// imageTags are further names of images that the nodes have.
var imageTags = map[string]string{
	"registry.k8s.io/e2e-test-images/jessie-dnsutils:1.7": agnhostImage,
	"registry.k8s.io/e2e-test-images/nginx:1.14-4":        agnhostImage, // only has to run
	"registry.k8s.io/e2e-test-images/httpd:2.4.38-4":      agnhostImage, // only has to run
	"registry.k8s.io/pause:3.10.1":                        "localhost/unnest/pause:1",
}

// Upstream's tests pass on a cluster whose pods have their own NIC. UNNEST_E2E_FOCUS is a regular
// expression of the tests to run, UNNEST_E2E_TIME how long they may take, UNNEST_E2E_LANES how many run at
// the same time, UNNEST_E2E_RESULTS a directory that keeps the results.
func TestKubernetesConformance(t *testing.T) { testConformance(t, false) }

// Upstream's tests that need both families pass on a cluster that has them.
func TestKubernetesConformanceDualStack(t *testing.T) {
	testConformance(t, true, "--ip-families", cluster.DualStack)
}

func testConformance(t *testing.T, dual bool, options ...string) {
	t.Helper()
	k := newKubernetes(t, options...)
	if !k.step("up", k.up) {
		return
	}
	k.routeExternalIPs()
	if k.step("images", k.loadTestImages) {
		k.step("e2e.test", func() { k.upstream(dual) })
	}
}

// externalIPs has the addresses that upstream's Services have outside the cluster's Service range:
// externalIPs, and those of a further ServiceCIDR (RFC 5737).
const externalIPs = "203.0.113.0/24"

// routeExternalIPs gives new pods a path to externalIPs through their node, as to its Service range.
func (k *kubernetes) routeExternalIPs() {
	c, err := cluster.View()
	k.check(err)
	for _, node := range []string{"node1", "node2"} {
		_, err := c.OnNode(k.t.Context(), node, "sed", "-i", `s|"ranges": *\[|&"`+externalIPs+`",|`, "/etc/cni/net.d/10-pods.conflist")
		k.check(err)
		_, err = c.OnNode(k.t.Context(), node, "grep", "-q", externalIPs, "/etc/cni/net.d/10-pods.conflist")
		k.check(err)
	}
}

// loadTestImages gives the nodes stand-ins for upstream's images.
func (k *kubernetes) loadTestImages() {
	dir := filepath.Join(k.binaries, "kubernetes-e2e")
	agnhost, busybox := k.testImages(dir)
	c, err := cluster.View()
	k.check(err)
	for _, image := range []oci.Image{agnhost, busybox} {
		var archive bytes.Buffer
		k.check(image.Write(&archive))
		k.check(c.Load(k.t.Context(), func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil }))
	}
	for _, node := range []string{"node1", "node2"} {
		for to, from := range imageTags {
			_, err := c.OnNode(k.t.Context(), node, "ctr", "--namespace", "k8s.io", "images", "tag", from, to)
			k.check(err)
		}
	}
}

// testImages makes the images from what hack/kubernetes-e2e has left in dir.
func (k *kubernetes) testImages(dir string) (agnhost, busybox oci.Image) {
	root := filepath.Join(dir, "root")
	agnhost = oci.Image{
		Name: agnhostImage, Arch: runtime.GOARCH, Entrypoint: []string{"/agnhost"}, Args: []string{"pause"},
		Files: map[string][]byte{}, Links: map[string]string{"/agnhost-2": "agnhost"},
	}
	for _, name := range []string{"agnhost", "agnhost-whole", "localhost.crt", "localhost.key"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		k.check(err)
		agnhost.Files["/"+name] = content
	}
	dns, err := os.ReadFile(filepath.Join(k.binaries, "kubernetes", "coredns"))
	k.check(err)
	agnhost.Files["/coredns"] = dns
	for _, top := range []string{"usr", "bin", "sbin", "lib", "lib64"} {
		k.addTree(&agnhost, root, top)
	}
	program := filepath.Join(root, "bin/busybox")
	content, err := os.ReadFile(program)
	k.check(err)
	files := map[string][]byte{
		"/bin/busybox": content, "/etc/nsswitch.conf": []byte("hosts: files dns\nprotocols: files\nservices: files\n"),
		"/etc/passwd": []byte("root:x:0:0:root:/:/bin/sh\n"), "/tmp/.keep": nil,
	}
	for _, path := range []string{"/etc/nsswitch.conf", "/etc/passwd", "/tmp/.keep"} {
		agnhost.Files[path] = files[path]
	}
	busybox = oci.Image{Name: busyboxImage, Arch: runtime.GOARCH, Files: files, Links: map[string]string{}, Args: []string{"sh"}}
	agnhost.Links["/bin/nc"] = "nc.openbsd"
	for _, applet := range strings.Fields(mustRun(k.t, program, "--list")) {
		if applet != "busybox" {
			busybox.Links["/bin/"+applet] = "busybox"
		}
		// What Debian has counts: the wget of busybox-static crashes next to the libraries of glibc.
		has := func(dir string) bool { return agnhost.Files[dir+applet] != nil || agnhost.Links[dir+applet] != "" }
		if !slices.ContainsFunc([]string{"/bin/", "/usr/bin/", "/sbin/", "/usr/sbin/"}, has) {
			agnhost.Links["/bin/"+applet] = "busybox"
		}
	}
	return agnhost, busybox
}

// addTree adds the files and links under root/top to the image.
func (k *kubernetes) addTree(image *oci.Image, root, top string) {
	k.check(filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, root)
		switch d.Type() {
		case fs.ModeSymlink:
			image.Links[name], err = os.Readlink(path)
		case 0:
			if strings.Contains(name, "/gconv/") {
				break // character sets, which no test uses
			}
			image.Files[name], err = os.ReadFile(path)
		}
		return err
	}))
}

// facts are properties of the run, as JUnit has them.
func (k *kubernetes) facts() []byte {
	type property struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	var file struct {
		XMLName xml.Name   `xml:"testsuites"`
		Facts   []property `xml:"testsuite>properties>property"`
	}
	add := func(name, value string) {
		file.Facts = append(file.Facts, property{"unnest." + name, strings.TrimSpace(value)})
	}
	add("date", time.Now().UTC().Format(time.DateOnly))
	add("commit", mustRun(k.t, "git", "rev-parse", "--short=12", "HEAD"))
	add("Kubernetes", k.ctl("get", "nodes", "--output=jsonpath={.items[0].status.nodeInfo.kubeletVersion}"))
	add("nodes", k.ctl("get", "nodes", "--output=jsonpath={.items[0].status.nodeInfo.osImage}, {.items[0].status.nodeInfo.kernelVersion}, {.items[0].status.nodeInfo.containerRuntimeVersion}"))
	add("kube-proxy", "iptables")
	node, err := k.fleet.Find("node1")
	k.check(err)
	add("accelerator", string(node.Accel))
	load, err := os.ReadFile("/proc/loadavg")
	k.check(err)
	add("processors of the host", fmt.Sprintf("%d, load of the last 15 minutes %s", runtime.NumCPU(), strings.Fields(string(load))[2]))
	content, err := xml.MarshalIndent(file, "", " ")
	k.check(err)
	return content
}
