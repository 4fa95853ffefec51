package guestimage

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/machines/output"
	"unnest.io/unnest/internal/measure/machines/thishost"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/image"
	"unnest.io/unnest/internal/testbed/rootdir"
)

// rootScript runs a script in a root directory, which stays as it is, with files of ours and nothing
// else of this host. Its mounts and processes end with it. Java checks the age of the jars of an archive
// of class data, unless it is 0: in each image they have another one.
//
//go:embed derive.sh
var rootScript string

// derive adds the files that a case makes of its others, and makes them first if they are not in the cache.
func (i *Images) derive(ctx context.Context, c experiment.Case) error {
	if c.Local != nil || c.Probe != "" {
		return nil
	}
	derived := workload.ExtraOf(c.Workload()).Derived
	if derived.Script == "" {
		return nil
	}
	root, err := i.Builder.Root(ctx, i.Recipe)
	if err != nil {
		return err
	}
	key, err := derivedKey(root, derived, i.files)
	if err != nil {
		return err
	}
	cached := func(target string) string { return filepath.Join(i.Builder.Cache, "file-"+key+"-"+path.Base(target)) }
	if slices.ContainsFunc(derived.Paths, func(target string) bool { return !image.MarkUsed(cached(target)) }) {
		i.Builder.Progress("preparing " + c.Tool + " for a fast start (takes seconds, once)")
		if err := inRoot(ctx, root, derived, i.files, cached); err != nil {
			return err
		}
	}
	for _, target := range derived.Paths {
		i.derived[target] = cached(target)
	}
	return nil
}

// derivedKey identifies what the files are made of: the script, the other files, and the packages of the root.
func derivedKey(root string, d workload.Derived, files map[string]string) (string, error) {
	hash := sha256.New()
	packages, err := rootdir.Dir(root).ReadFile("var/lib/dpkg/status")
	if err != nil {
		return "", err
	}
	fmt.Fprintf(hash, "%s%s%d:%s", rootScript, d.Script, len(packages), packages)
	for _, target := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(hash, "%s %s\n", target, files[target]) // the name of a file that is fetched has its digest
	}
	return hex.EncodeToString(hash.Sum(nil))[:32], nil
}

// inRoot runs the script, and moves what it has made to its place.
func inRoot(ctx context.Context, root string, d workload.Derived, files map[string]string, cached func(string) string) (err error) {
	out, err := os.MkdirTemp(filepath.Dir(cached("")), thishost.WorkPrefix+"derive-")
	if err != nil {
		return err
	}
	lock, err := thishost.ClaimWork(out) // as long as this process lives, nobody else removes it
	if err != nil {
		return errors.Join(err, os.RemoveAll(out))
	}
	defer func() { err = errors.Join(err, os.RemoveAll(out), lock.Close()) }()
	args := []string{"--mount", "--pid", "--net", "--fork", "--kill-child", "bash", "-c", rootScript, "unnest-derive", root, d.Script, out}
	for _, target := range slices.Sorted(maps.Keys(files)) {
		args = append(args, files[target], target)
	}
	cmd := exec.CommandContext(ctx, "unshare", args...)
	runtime.LockOSThread() // Pdeathsig refers to the thread
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL}
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", errors.Join(context.Cause(ctx), err), output.LastLines(string(said)))
	}
	if err := image.Sync(out); err != nil {
		return err
	}
	for _, target := range d.Paths {
		if err := os.Rename(filepath.Join(out, path.Base(target)), cached(target)); err != nil {
			return err
		}
	}
	return nil
}

// addDerived adds the files that cases make of their others. Without them the cases start slower: a
// note says why they are not there.
func (i *Images) addDerived(ctx context.Context) {
	for _, c := range i.spec.Cases {
		if err := i.derive(ctx, c); err != nil {
			i.note(fmt.Sprintf("The server of %s starts slower, because this failed: %s.", c.Name, strings.TrimSuffix(err.Error(), ".")))
		}
	}
}
