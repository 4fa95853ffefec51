package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"unnest/internal/plan/cluster"
	"unnest/internal/plan/summary"
)

// splitPod is a pod whose containers are on several VMs.
type splitPod struct {
	user, namespace, name string // namespace: empty where it is not known
	fractions             []fraction
}

// fraction is what of a pod is on one VM.
type fraction struct {
	vm         int
	model      string
	containers []string
}

// splitPods returns the split pods of a plan, in the user's order; their fractions by
// VM. Where a label names users, names of pods are NAMESPACE/NAME; else the user is
// the namespace, if it can be one.
func splitPods(u cluster.User, labelled bool, c cluster.Catalogue, p cluster.Plan) []splitPod {
	several := onSeveral(p)
	of := map[int][]fraction{}
	for _, vm := range p.VMs {
		for _, pod := range summary.ByPod(vm.Parts) {
			if !several[pod.Pod] {
				continue
			}
			f := fraction{vm: vm.ID, model: c[vm.Model].Name}
			for _, k := range pod.Containers {
				f.containers = append(f.containers, u.Pods[pod.Pod].Containers[k].Name)
			}
			of[pod.Pod] = append(of[pod.Pod], f)
		}
	}
	var pods []splitPod
	for i, pod := range u.Pods {
		if !several[i] {
			continue
		}
		split := splitPod{user: u.Name, name: pod.Name, fractions: of[i]}
		if namespace, name, both := strings.Cut(pod.Name, "/"); labelled && both {
			split.namespace, split.name = namespace, name
		} else if namespace, same := kubeName(u.Name, mostNamespace, ""); same {
			split.namespace = namespace
		}
		pods = append(pods, split)
	}
	return pods
}

// onSeveral returns the pods that have containers on several VMs.
func onSeveral(p cluster.Plan) map[int]bool {
	first, several := map[int]int{}, map[int]bool{}
	for i, vm := range p.VMs {
		for _, part := range vm.Parts {
			if at, seen := first[part.Pod]; seen && at != i {
				several[part.Pod] = true
			} else {
				first[part.Pod] = i
			}
		}
	}
	return several
}

// The keys of manifests, below unnest.io. What they mean is in docs/plan.md.
const (
	splitLabel = "unnest.io/split-pod"
	userKey    = "unnest.io/user"
	podKey     = "unnest.io/pod"
	countKey   = "unnest.io/fractions"
	fractionOf = "unnest.io/fraction."
)

// manifest returns the pod's metadata as YAML, to be merged into a pod. Every value is
// in quotes: no name is taken for a number.
func (p splitPod) manifest() []byte {
	name, _ := kubeName(p.name, mostPodName, ".")
	text := "apiVersion: v1\nkind: Pod\nmetadata:\n" + entry(2, "name", name)
	if p.namespace != "" {
		text += entry(2, "namespace", p.namespace)
	}
	text += "  labels:\n" + entry(4, splitLabel, "true") + "  annotations:\n" +
		entry(4, userKey, p.user) + entry(4, podKey, p.name) + entry(4, countKey, strconv.Itoa(len(p.fractions)))
	for i, f := range p.fractions {
		key := fractionOf + strconv.Itoa(i)
		text += entry(4, key, strings.Join(f.containers, ",")) + entry(4, key+".model", f.model) + entry(4, key+".vm", strconv.Itoa(f.vm))
	}
	return []byte(text)
}

// entry returns a line of YAML. What JSON quotes, YAML takes (1.2, §1.3).
func entry(indent int, key, value string) string {
	var quoted bytes.Buffer
	enc := json.NewEncoder(&quoted) // ends the line
	enc.SetEscapeHTML(false)
	_ = enc.Encode(value) // of a string never fails
	return strings.Repeat(" ", indent) + key + ": " + quoted.String()
}

// file returns the name of the manifest. Where the names of user and pod had to be
// changed, a hash of them tells it apart.
func (p splitPod) file() string {
	user, _ := kubeName(p.user, mostNamespace, "")
	pod, samePod := kubeName(p.name, mostNamespace, ".")
	name := user + "_" + pod
	if user != p.namespace || !samePod {
		h := fnv.New64a()
		h.Write([]byte(p.user + "\x00" + p.namespace + "\x00" + p.name)) //nolint:errcheck // never fails
		name = fmt.Sprintf("%s_%016x", name, h.Sum64())
	}
	return name + ".yaml"
}

// The lengths of names that Kubernetes takes.
const (
	mostNamespace = 63
	mostPodName   = 253
)

// kubeName returns the text as a name that Kubernetes takes, of small letters,
// digits, dashes and what else is allowed, and whether that is the same.
func kubeName(text string, most int, allowed string) (name string, same bool) {
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || strings.ContainsRune(allowed, r):
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, text)
	name = strings.Trim(name[:min(len(name), most)], "-.")
	if name == "" {
		name = "x"
	}
	return name, name == text
}

// writeManifests writes one file for each pod into a directory that is new or empty:
// all, or none.
func writeManifests(dir string, pods []splitPod) (err error) {
	dir = filepath.Clean(dir)
	building, err := os.MkdirTemp(filepath.Dir(dir), "."+filepath.Base(dir)+".")
	if err != nil {
		return fmt.Errorf("write manifests to %s: %w", dir, withoutPath(err))
	}
	success := false
	defer func() {
		if !success {
			err = errors.Join(err, os.RemoveAll(building))
		}
	}()
	for _, p := range pods {
		if err := os.WriteFile(filepath.Join(building, p.file()), p.manifest(), 0o644); err != nil {
			return fmt.Errorf("write manifests to %s: %w", dir, withoutPath(err))
		}
	}
	if err := errors.Join(os.Chmod(building, 0o755), mayFill(dir)); err != nil {
		return err
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write manifests to %s: %w", dir, withoutPath(err))
	}
	if err := os.Rename(building, dir); err != nil {
		return fmt.Errorf("write manifests to %s: %w", dir, withoutPath(err))
	}
	success = true
	return nil
}

// withoutPath drops the name of the directory that is being filled, which nobody
// named.
func withoutPath(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	}
	return err
}
