package manifest

import (
	"fmt"
	"math"
	"strings"

	"unnest.io/unnest/internal/plan/summary"
)

// Requests returns a patch of the pod template of each Deployment and StatefulSet whose
// containers should request something else, for kubectl patch --patch-file.
func Requests(changes []summary.Request) []File {
	type workload struct{ namespace, kind, name string }
	containers := map[workload]map[string][]any{}
	var order []workload
	for _, c := range changes {
		if c.Kind != "Deployment" && c.Kind != "StatefulSet" {
			continue
		}
		w := workload{c.Namespace, c.Kind, c.Workload}
		if containers[w] == nil {
			containers[w] = map[string][]any{}
			order = append(order, w)
		}
		list := "containers"
		if c.Sidecar {
			list = "initContainers"
		}
		containers[w][list] = append(containers[w][list], fields{"name": c.Container, "resources": fields{"requests": fields{
			"cpu": fmt.Sprintf("%.0fm", math.Ceil(c.To.VCPU*1000-1e-6)), "memory": fmt.Sprintf("%.0fMi", math.Ceil(c.To.GiB*1024-1e-6))}}})
	}
	var files []File
	for _, w := range order {
		files = append(files, File{fmt.Sprintf("%s_%s_%s.json", w.namespace, strings.ToLower(w.kind), w.name), text(fields{
			"apiVersion": "apps/v1", "kind": w.kind, "metadata": fields{"name": w.name, "namespace": w.namespace},
			"spec": fields{"template": fields{"spec": containers[w]}}})})
	}
	return files
}
