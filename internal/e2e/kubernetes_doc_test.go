//go:build kubernetes

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Who follows the tutorial of docs/kubernetes.md literally gets what it says.
func TestKubernetesTutorial(t *testing.T) {
	newKubernetes(t).tutorial("../../docs/kubernetes.md", map[string]string{ // output, by a part of the block
		"get nodes":      "node2   Ready",
		"http://web/":    "hello\n",
		"uevent":         "DRIVER=virtio_net",
		"hostd status":   "10.201.1.",
		"cluster status": "NetworkPolicies          enforced",
		"cluster repair": "all parts run",
		"--ip-families":  "NetworkPolicies are in force",
	})
}

// The same for the tutorial of docs/split-pods.md.
func TestKubernetesSplitTutorial(t *testing.T) {
	newKubernetes(t).tutorial("../../docs/split-pods.md", map[string]string{
		"-L unnest":        "cluster",
		"-o wide":          "web-f1",
		"http://127.0.0.1": "hello from web",
		"hostd status":     "node",
	})
}

// tutorial executes the marked blocks of a page. printed is a part of what blocks print, by a part of each.
func (k *kubernetes) tutorial(page string, printed map[string]string) {
	t := k.t
	dir := t.TempDir() // stands for the source tree: the tutorial writes a kubeconfig there
	bin, err := filepath.Abs(k.binaries)
	k.check(err)
	k.check(os.Symlink(bin, filepath.Join(dir, "bin")))
	for _, b := range marked(t, page) {
		if b.mark == "fail" {
			k.eventually("it fails: "+b.text, func() bool { _, err := k.follow(dir, b.text); return err != nil })
			continue
		}
		out, err := k.follow(dir, b.text)
		if err != nil {
			t.Fatalf("%s: %v", b.text, err)
		}
		for part, want := range printed {
			if strings.Contains(b.text, part) {
				if delete(printed, part); !strings.Contains(out, want) {
					t.Errorf("%s: want %q in its output", b.text, want)
				}
			}
		}
	}
	for part := range printed {
		t.Errorf("%s has no executed block with %q", page, part)
	}
}

// follow runs a block in a directory, in a shell that has run the tutorial's exports.
func (k *kubernetes) follow(dir, block string) (string, error) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), 20*time.Minute)
	defer cancel()
	script := "set -e; export KUBECONFIG=$PWD/kubeconfig PATH=$PWD/bin/kubernetes:$PATH\n" + strings.ReplaceAll(block, "/run/unnest", os.Getenv("UNNEST_STATE"))
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.Dir, cmd.WaitDelay = dir, time.Minute
	begin := time.Now()
	out, err := cmd.CombinedOutput()
	k.t.Logf("%.1f s: %s\n%s", time.Since(begin).Seconds(), block, out)
	return string(out), err
}
