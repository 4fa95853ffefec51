//go:build dist

package hack

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A release built twice, in directories with different paths, is the same in every byte; its checksums
// hold, and are signed by the key of the release.
func TestDist(t *testing.T) {
	dir := t.TempDir()
	must := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Env = append(os.Environ(), "ARCHS=amd64", "VERSION=v1.2.3-rc.1-4-gabcdef0", "REVISION=abcdef0", "SOURCE_DATE_EPOCH=1700000000",
			"RELEASE_KEY="+filepath.Join(dir, "key"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	must("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, "key"))
	must("env", "CGO_ENABLED=0", "go", "build", "-C", "../tools/nfpm", "-trimpath", "-o", dir, "github.com/goreleaser/nfpm/v2/cmd/nfpm")
	trees := []string{filepath.Join(dir, "a"), filepath.Join(dir, "another/and/longer")}
	for _, tree := range trees { // both before the first is built: somebody may edit the sources meanwhile
		must("sh", "-ec", `mkdir -p "$1/bin"; cp "$2/nfpm" "$1/bin"; cd ..
git -c safe.directory='*' ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$1"`, "copy", tree, dir)
	}
	var outs []string
	for _, tree := range trees {
		outs = append(outs, filepath.Join(tree, "dist"))
		must(filepath.Join(tree, "hack/dist"), filepath.Join(tree, "dist"))
	}
	must("diff", "-r", outs[0], outs[1])

	const version = "1.2.3~rc.1+4.gabcdef0"
	listed := must("sh", "-ec", `cd "$1"; sha256sum --strict --check SHA256SUMS; ls`, "check", outs[0])
	for _, name := range []string{
		"unnest_%s_amd64.deb", "unnest-%s-1.x86_64.rpm", "unnest-%s-linux-amd64.tar.gz", "unnest-%s-linux-amd64.spdx.json",
		"unnest-cni-%s-linux-amd64.oci.tar", "unnest-load-%s-linux-amd64.oci.tar",
	} {
		if name = fmt.Sprintf(name, version); !strings.Contains(listed, name+": OK\n") {
			t.Errorf("%s is not in SHA256SUMS:\n%s", name, listed)
		}
	}
	must("sh", "-ec", `cd "$1"; echo "release $(cat "$2.pub")" >"$2.allowed"
ssh-keygen -Y verify -f "$2.allowed" -I release -n unnest-release -s SHA256SUMS.sig <SHA256SUMS`, "verify", outs[0], filepath.Join(dir, "key"))
	contents := must("sh", "-ec", `cd "$1"; dpkg-deb --contents *.deb; tar -tzf *.tar.gz`, "list", outs[0])
	for _, name := range []string{"unnest-docker.service", "unnest-docker.socket", "unnest-reclaim.service", "compose.yaml"} {
		if strings.Count(contents, "/usr/share/doc/unnest/examples/"+name+"\n") != 1 || strings.Count(contents, "/"+name+"\n") != 2 {
			t.Errorf("%s is not in package and tarball, among the examples and at the top:\n%s", name, contents)
		}
	}
	if out := must("sh", "-ec", `tar -C "$2" -xzf "$1"/unnest-*.tar.gz; "$2"/unnest-*/unnest version`, "run", outs[0], dir); !strings.HasPrefix(out, "unnest v1.2.3-rc.1-4-gabcdef0 (revision abcdef0,") {
		t.Errorf("the program says %q", out)
	}
}
