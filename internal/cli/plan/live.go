package plan

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// liveCluster stands for a cluster that kubectl reads, in the place of a path.
const liveCluster = "the cluster"

// defaultKubeconfig is the word for the kubeconfig that kubectl finds.
const defaultKubeconfig = "default"

// objects are what a plan needs of a cluster.
const objects = "nodes,pods,poddisruptionbudgets,persistentvolumes,csinodes,namespaces"

// shortObjects are the same as people write them.
const shortObjects = "nodes,pods,pdb,pv,csinodes,ns"

// dump returns what kubectl prints of the cluster, and its first complaint if it could not read
// everything.
func dump(ctx context.Context, opts Options) (text []byte, remark string, err error) {
	text, err = kubectl(ctx, opts, "get", objects, "-A", "-o", "json")
	var partly partlyError
	if errors.As(err, &partly) {
		return text, "kubectl could not read everything: " + partly.first, nil
	}
	return text, "", err
}

// partlyError says that kubectl failed after it had printed something.
type partlyError struct{ first string } // its first complaint

func (e partlyError) Error() string { return e.first }

// kubectl returns what kubectl prints.
func kubectl(ctx context.Context, opts Options, args ...string) ([]byte, error) {
	args = slices.Clone(args)
	file, cluster, named := strings.Cut(opts.Kubeconfig, ",context=")
	if file != defaultKubeconfig {
		args = append(args, "--kubeconfig", file)
	}
	if named {
		args = append(args, "--context", cluster)
	}
	var out, complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, "kubectl", args...)
	cmd.Stdout, cmd.Stderr = &out, &complaint
	err := cmd.Run()
	first, _, _ := strings.Cut(strings.TrimSpace(complaint.String()), "\n")
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return nil, fmt.Errorf("--kubeconfig %s: %w: install kubectl, or name a file that kubectl %s has written", opts.Kubeconfig, err, strings.Join(args, " "))
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil && out.Len() == 0:
		return nil, fmt.Errorf("--kubeconfig %s: kubectl %s: %s", opts.Kubeconfig, strings.Join(args, " "), cmp.Or(first, err.Error()))
	case err != nil:
		return out.Bytes(), partlyError{cmp.Or(first, err.Error())}
	}
	return out.Bytes(), nil
}
