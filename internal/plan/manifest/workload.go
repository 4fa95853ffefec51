package manifest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

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

// partition is the value of the annotation with the fractions sorted, so that equal splits have
// equal texts.
func (p Pod) partition() string {
	parts := p.containers()
	slices.Sort(parts)
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
