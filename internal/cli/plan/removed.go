package plan

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"unnest.io/unnest/internal/cli/usage"
)

// inCatalogue says how a file for --catalogue gives what a flag gave.
func inCatalogue(line string) string {
	return "write " + line + " into a YAML file, and name it with --catalogue"
}

// inColumns is inCatalogue for --columns.
func inColumns(line string) string {
	return "write " + line + " into a copy of the trace's file in internal/plan/trace/columns, and name it with --columns"
}

// removed are flags of earlier versions, with what to do in their place.
var removed = map[string]string{
	"model":           inCatalogue("models: [NAME, …]"),
	"price":           inCatalogue("price: TERM"),
	"unit-prices":     inCatalogue("unit_prices: {vcpu: 0.02, gib: 0.0025}"),
	"kube-reserved":   inCatalogue("kube_reserved: eks"),
	"system-reserved": inCatalogue("system_reserved: {vcpu: 0.1, memory: 200Mi}"),
	"daemonsets":      inCatalogue("daemonsets: {vcpu: 0.3, memory: 500Mi, pods: 4}"),
	"host":            inCatalogue("host: {vcpu: 96, memory: 384Gi}"),
	"billing-minimum": inCatalogue("billing_minimum: 1m"),
	"max-broken":      inColumns("broken_lines: N"),
	"max-containers":  inColumns("containers: N"),
	"requested":       "use --packing requested=…",
	"wasted":          "use --packing wasted=…",
	"moving":          "use --packing moving=…",
	"emptying":        "use --packing emptying=…",
	"rounds":          "use --packing rounds=…",
	"effort":          "use --packing effort=…",
	"context":         "use --kubeconfig FILE,context=CONTEXT, such as default,context=prod",
	"frontier":        "use --links all",
	"hostlo-case":     "use --hostlo-run DIR,case=CASE",
	"link-cpu":        "use --hostlo-run DIR,link-cpu=VCPUS",
	"migrations":      "use --replay=CONTAINERS",
	"write-manifests": "use --write DIR",
	"write-vms":       "use --write DIR",
	"write-requests":  "use --write DIR with --use",
	"scheme":          "use --write PLAN:DIR, such as whole:vms",
	"html":            "use -o FILE.html, which may be next to another -o",
}

// flagError says what is in place of a removed flag.
func flagError(cmd *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if name := unknown.GetSpecifiedName(); name == "nodes" || name == "pods" {
			return usage.Errorf("--%s is not a flag: nodes, pods and volumes are in one dump: kubectl get %s -A -o json > cluster.json, then --trace cluster.json", name, shortObjects)
		}
		if instead := removed[unknown.GetSpecifiedName()]; instead != "" && unknown.GetSpecifiedShortnames() == "" {
			return usage.Errorf("--%s is gone: %s", unknown.GetSpecifiedName(), instead)
		}
	}
	top := cmd
	for top.HasParent() {
		top = top.Parent()
	}
	if top.Name() == "plan" { // alone, as in tests
		return usage.Wrap(err)
	}
	return top.FlagErrorFunc()(cmd, err)
}
