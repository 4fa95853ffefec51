// Package manifest writes the split pods of a plan as Kubernetes metadata, to be merged into
// the pods. docs/plan.md explains the keys.
package manifest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/summary"
)

// Pod is a pod with containers on several VMs.
type Pod struct {
	User, Namespace, Name string // Namespace is empty if it is unknown
	Fractions             []Fraction
	Kind, Workload        string // that makes the pod; empty: none that can be patched
	Replicas              int    // pods of the workload, also of those that are not planned

	kubeName string // a valid name that no other pod has
}

// Fraction is the part of a pod on one VM.
type Fraction struct {
	VM         int
	Model      string
	Containers []string
}

// Split returns the split pods of a plan in the user's order. The fraction of the first container is the first, which
// Kubernetes takes for the pod; the others are sorted by VM. Sidecars are in none: init containers run in the first
// fraction, wherever the plan has put them. A pod of Kubernetes has its own names. For others, the user is the namespace,
// if it is a valid name of one. A name that has to be changed and would then be that of another pod of the user gets a hash.
// all has every pod of the cluster: Replicas counts those of a workload.
func Split(u cluster.User, all []cluster.Pod, c cluster.Catalogue, p cluster.Plan) []Pod {
	fractions := make([][]Fraction, len(u.Pods))
	for _, vm := range p.VMs {
		for _, placed := range summary.ByPod(vm.Parts) {
			f, pod, sidecars, at := Fraction{VM: vm.ID, Model: c[vm.Model].Name}, u.Pods[placed.Pod], 0, len(fractions[placed.Pod])
			if pod.Origin != nil {
				sidecars = pod.Origin.Sidecars
			}
			for _, k := range placed.Containers {
				if k >= sidecars {
					f.Containers = append(f.Containers, pod.Containers[k].Name)
				}
				if k == sidecars {
					at = 0
				}
			}
			if len(f.Containers) > 0 {
				fractions[placed.Pod] = slices.Insert(fractions[placed.Pod], at, f)
			}
		}
	}
	namespace, same := kubeName(u.Name, maxNamespace, "")
	if !same {
		namespace = ""
	}
	names := kubeNames(u.Pods)
	replicas := map[[3]string]int{}
	for _, pod := range all {
		if o := pod.Origin; o != nil {
			replicas[[3]string{o.Namespace, o.Kind, o.Workload}]++
		}
	}
	var pods []Pod
	for i, pod := range u.Pods {
		if len(fractions[i]) < 2 {
			continue
		}
		split := Pod{User: u.Name, Namespace: namespace, Name: pod.Name, Fractions: fractions[i], kubeName: names[i]}
		if o := pod.Origin; o != nil {
			split.Namespace, split.Name = o.Namespace, o.Name
			if o.Kind == "Deployment" || o.Kind == "StatefulSet" {
				split.Kind, split.Workload, split.Replicas = o.Kind, o.Workload, replicas[[3]string{o.Namespace, o.Kind, o.Workload}]
			}
		}
		pods = append(pods, split)
	}
	return pods
}

// kubeNames returns a valid name for each pod. No changed name is that of another pod of the
// same namespace.
func kubeNames(pods []cluster.Pod) []string {
	names := make([]string, len(pods))
	count := map[[2]string]int{}
	original := func(p cluster.Pod) (namespace, name string) {
		if p.Origin != nil {
			return p.Origin.Namespace, p.Origin.Name
		}
		return "", p.Name
	}
	for i, p := range pods {
		namespace, text := original(p)
		names[i], _ = kubeName(text, maxPodName, ".")
		count[[2]string{namespace, names[i]}]++
	}
	for i, p := range pods {
		namespace, text := original(p)
		if names[i] != text && count[[2]string{namespace, names[i]}] > 1 {
			hash := fmt.Sprintf("-%016x", hash64(text))
			names[i] = names[i][:min(len(names[i]), maxPodName-len(hash))] + hash
		}
	}
	return names
}

func hash64(texts ...string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(strings.Join(texts, "\x00"))) //nolint:errcheck // never fails
	return h.Sum64()
}

// The keys of manifests.
const (
	splitKey   = "unnest.io/split" // splitpod.SplitAnnotation
	userKey    = "unnest.io/user"
	podKey     = "unnest.io/pod"
	fractionOf = "unnest.io/fraction."
)

// YAML returns the metadata. Every value is quoted, so that no name is read as a number.
func (p Pod) YAML() []byte {
	text := "apiVersion: v1\nkind: Pod\nmetadata:\n" + entry(2, "name", p.kubeName)
	if p.Namespace != "" {
		text += entry(2, "namespace", p.Namespace)
	}
	text += "  annotations:\n" + entry(4, splitKey, strings.Join(p.containers(), ";")) + entry(4, userKey, p.User) + entry(4, podKey, p.Name)
	for i, f := range p.Fractions {
		key := fractionOf + strconv.Itoa(i)
		text += entry(4, key+".model", f.Model) + entry(4, key+".vm", strconv.Itoa(f.VM))
	}
	return []byte(text)
}

// containers returns the names of each fraction's containers, with commas.
func (p Pod) containers() (all []string) {
	for _, f := range p.Fractions {
		all = append(all, strings.Join(f.Containers, ","))
	}
	return all
}

// entry returns a line of YAML. YAML accepts JSON strings (1.2, §1.3).
func entry(indent int, key, value string) string {
	var quoted bytes.Buffer
	enc := json.NewEncoder(&quoted) // ends the line
	enc.SetEscapeHTML(false)
	_ = enc.Encode(value) // of a string never fails
	return strings.Repeat(" ", indent) + key + ": " + quoted.String()
}

// File returns the name of the file. If the names of user and pod are not valid in it, it has
// a hash of them.
func (p Pod) File() string {
	user, _ := kubeName(p.User, maxNamespace, "")
	pod, samePod := kubeName(p.Name, maxNamespace, ".")
	name := user + "_" + pod
	if user != p.Namespace || !samePod {
		name = fmt.Sprintf("%s_%016x", name, hash64(p.User, p.Namespace, p.Name))
	}
	return name + ".yaml"
}

// The maximum lengths of names in Kubernetes.
const (
	maxNamespace = 63
	maxPodName   = 253
)

// kubeName returns the text as a valid name in Kubernetes: lower-case letters, digits, dashes
// and the allowed characters. It reports whether that equals the text.
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
	name = cmp.Or(strings.Trim(name[:min(len(name), most)], "-."), "x")
	return name, name == text
}

// Files returns a file for each Deployment and StatefulSet with split pods, and for each other
// split pod. Pods of a workload have one template, so its file has the split that most of the
// split pods have, the first in the order of their text if several are as frequent.
func Files(pods []Pod) []File {
	var files []File
	of := map[string][]Pod{}
	var order []string
	for _, p := range pods {
		if p.Workload == "" {
			files = append(files, File{p.File(), p.YAML()})
			continue
		}
		key := p.Namespace + "/" + p.Kind + "/" + p.Workload
		if of[key] == nil {
			order = append(order, key)
		}
		of[key] = append(of[key], p)
	}
	for _, key := range order {
		first := of[key][0]
		name := fmt.Sprintf("%s_%s_%s.yaml", first.Namespace, strings.ToLower(first.Kind), first.Workload)
		files = append(files, File{name, workload(of[key])})
	}
	return files
}

// partition is the value of the annotation with the fractions after the first sorted, so that equal splits have
// equal texts.
func (p Pod) partition() string {
	parts := p.containers()
	slices.Sort(parts[1:])
	return strings.Join(parts, ";")
}

// workload returns a patch of the pod template of a workload.
func workload(pods []Pod) []byte {
	count := map[string]int{}
	for _, p := range pods {
		count[p.partition()]++
	}
	most := slices.MinFunc(slices.Collect(maps.Keys(count)), func(a, b string) int { return cmp.Or(count[b]-count[a], strings.Compare(a, b)) })
	p := pods[0]
	text := fmt.Sprintf("# %d of its pods are split so in the plan, %d otherwise.\napiVersion: apps/v1\nkind: %s\nmetadata:\n", count[most], len(pods)-count[most], p.Kind) +
		entry(2, "name", p.Workload) + entry(2, "namespace", p.Namespace) + "spec:\n  template:\n    metadata:\n      annotations:\n" + entry(8, splitKey, most)
	if len(pods) < p.Replicas {
		return partly(text, len(pods), p.Replicas)
	}
	return []byte(text)
}

// partly returns the patch as a comment: the template of a workload would split all of its pods.
func partly(patch string, split, replicas int) []byte {
	text := fmt.Sprintf("# Not a patch: the plan splits %d of %d pods, and a patch of the template would split all of them.\n# Make a workload of %d of them, with this template, and leave %d as they are.\n", split, replicas, split, replicas-split)
	for line := range strings.Lines(patch) {
		text += "# " + line
	}
	return []byte(text)
}
