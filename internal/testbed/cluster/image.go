package cluster

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"os"
	"path/filepath"

	"unnest.io/unnest/internal/testbed/image"
	"unnest.io/unnest/internal/testbed/oci"
	"unnest.io/unnest/internal/testbed/rootdir"
)

// The images that every node has. ToolsImage is busybox, with nc, httpd and wget.
const (
	pauseImage = "localhost/unnest/pause:1"
	ToolsImage = "localhost/unnest/busybox:1"
)

//go:embed node
var nodeFiles embed.FS

// nodePaths are the paths of our files in the image of nodes.
var nodePaths = map[string]string{
	"node/inittab":         "/etc/inittab",
	"node/engine":          "/etc/unnest/engine",
	"node/credentials":     "/etc/unnest/credentials",
	"node/kubelet":         "/etc/unnest/kubelet",
	"node/kube-proxy":      "/etc/unnest/kube-proxy",
	"node/volumes":         "/etc/unnest/volumes",
	"node/containerd.toml": "/etc/containerd/config.toml",
}

// nodePackages are the Debian packages that nodes need beyond those of other guests.
var nodePackages = []string{"conntrack", "crun", "ethtool", "nftables"}

// programs are the files that the directory of Kubernetes' programs must have.
var programs = []string{dnsProgram, "etcd", "kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubectl", "kubelet"}

// FindPrograms returns the absolute path of the directory, without symbolic links, if it has
// all programs.
func FindPrograms(dir string) (string, error) {
	path, err := filepath.Abs(dir)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	for _, name := range programs {
		if err == nil {
			_, err = os.Stat(filepath.Join(path, name))
		}
	}
	if err != nil {
		return "", fmt.Errorf("find the programs of Kubernetes: %w: run `make kubernetes`, or name their directory by --kubernetes DIR", err)
	}
	return path, nil
}

// BuildImage returns the guest image of nodes. binaries is the directory with our binaries,
// programs that with the programs of Kubernetes; step is called with each step of the build.
func BuildImage(ctx context.Context, binaries, programs string, step func(string)) (image.Image, error) {
	b := image.Builder{
		Cache: image.CacheDir(), Progress: step, Contents: map[string][]byte{},
		Files: map[string]string{
			"/usr/local/bin/nerdctl":       filepath.Join(binaries, "nerdctl"),
			"/usr/local/bin/unnest-volume": filepath.Join(binaries, "unnest-volume"),
			"/usr/lib/cni/brfusion":        filepath.Join(binaries, "unnest-cni"),
			"/usr/lib/cni/hostlo":          filepath.Join(binaries, "unnest-cni"),
			"/usr/local/bin/kubelet":       filepath.Join(programs, "kubelet"),
			"/usr/local/bin/kube-proxy":    filepath.Join(programs, "kube-proxy"),
		},
	}
	for name, path := range nodePaths {
		content, err := nodeFiles.ReadFile(name)
		if err != nil {
			return image.Image{}, err
		}
		b.Contents[path] = content
	}
	recipe := image.DefaultRecipe().With(nodePackages...).WithDrives()
	root, err := b.Root(ctx, recipe)
	if err != nil {
		return image.Image{}, err
	}
	busybox, err := rootdir.Dir(root).ReadFile("bin/busybox")
	if err != nil {
		return image.Image{}, fmt.Errorf("make images of pods: %w", err)
	}
	for _, i := range podImages(busybox) {
		var archive bytes.Buffer
		if err := i.Write(&archive); err != nil {
			return image.Image{}, err
		}
		b.Contents["/usr/share/unnest/kubernetes/"+filepath.Base(i.Name)+".tar"] = archive.Bytes()
	}
	return b.Build(ctx, recipe)
}

// podImages returns the images that every node has, made of a static busybox.
func podImages(busybox []byte) []oci.Image {
	files := map[string][]byte{
		"/bin/busybox": busybox,
		// Without it, names make the static busybox look for shared libraries, and crash.
		"/etc/nsswitch.conf": []byte("hosts: files dns\nprotocols: files\nservices: files\n"),
		"/tmp/.keep":         nil, // the directory is for pods
	}
	links := map[string]string{}
	for _, name := range []string{"sh", "cat", "httpd", "ip", "ls", "nc", "nslookup", "ping", "sleep", "wget"} {
		links["/bin/"+name] = "busybox"
	}
	// The pause container keeps the namespaces of a pod.
	pause := []string{"/bin/busybox", "sleep", "infinity"}
	return []oci.Image{
		{Name: pauseImage, Arch: string(image.AMD64), Files: files, Entrypoint: pause},
		{Name: ToolsImage, Arch: string(image.AMD64), Files: files, Links: links, Entrypoint: pause},
	}
}
