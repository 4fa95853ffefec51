package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"unnest.io/unnest/internal/check/cni"
)

// render writes the page of the outcomes, in their order.
func render(all []outcome) string {
	var b strings.Builder
	var names []string
	perfect := map[string]bool{} // the lists that were tried
	for _, o := range all {
		if !slices.Contains(names, o.List) {
			names = append(names, o.List)
		}
		if o.Check != "" {
			good, seen := perfect[o.List]
			perfect[o.List] = (good || !seen) && o.Verdict != cni.Fail
		}
	}
	passed := 0
	for _, good := range perfect {
		if good {
			passed++
		}
	}
	fmt.Fprintf(&b, `# CNI plugins compared by behaviour

**%d of %d lists of plugins passed every check of what the specification demands.**

`+"`unnest-conformance`"+` checks network configuration lists of the reference plugins (`+"`%s`"+`) against version `+"`%s`"+` of the
specification, in network namespaces of one Linux. Repeat it: `+"`go run ./hack/cniplugins DIR`"+`. [All outcomes](cni-plugins.jsonl) are kept. How to check another plugin:
[CNI plugins of others](../conformance.md).

Left out are tap, whose pods reach nobody, sbr, which moves the routes of the result to another table, and host-device, whose
only device stays with the pod of a check that fails. The module proxy here does not serve flannel, Multus and kindnet; calico's and
cilium's plugins do not run without their agents.

- **passed, failed**: what the specification demands.
- **unmet**: what the specification recommends, or what runtimes rely on.

| list | passed | failed | unmet | not applicable | failed checks |
|---|--:|--:|--:|--:|---|
`, passed, len(perfect), strings.TrimPrefix(plugins, "github.com/"), version)
	for _, name := range names {
		count, failed := map[cni.Verdict]int{}, []string{}
		for _, o := range all {
			if o.List != name || o.Check == "" {
				continue
			}
			count[o.Verdict]++
			if o.Verdict == cni.Fail && !slices.Contains(failed, o.Check) {
				failed = append(failed, o.Check)
			}
		}
		if len(count) == 0 {
			fmt.Fprintf(&b, "| %s | | | | | not tried: the kernel has no such device |\n", name)
			continue
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %s |\n", name, count[cni.Pass], count[cni.Fail], count[cni.Unmet], count[cni.NotApplicable], strings.Join(failed, ", "))
	}
	for _, v := range []cni.Verdict{cni.Fail, cni.Unmet} {
		b.WriteString(map[cni.Verdict]string{cni.Fail: "\n## What failed\n", cni.Unmet: "\n## Recommendations that are not met\n"}[v])
		section(&b, all, v)
	}
	return b.String()
}

// wants says what the specification wants where a list does otherwise.
var wants = map[string]string{
	"add-two-interfaces":       "a container may be added to a network more than once, with another interface each time. Each ADD, and each DEL, succeeds.",
	"del-netns-gone":           "DEL completes without an error, and frees what is outside of the namespace, also if the namespace is gone.",
	"del-netns-empty":          "the same without CNI_NETNS, which a runtime may leave out.",
	"crash-del":                "a runtime may repeat DEL, also one that was killed. It completes without an error.",
	"add-no-delegate-rollback": "a plugin whose delegated plugin fails undoes what it has done before it returns the error.",
	"error-cni-version":        "an error object has the version of the configuration.",
	"status-exhausted":         "STATUS fails, with code 50, when an ADD would fail because no address is left.",
	"gc-frees-leaked":          "after GC without valid attachments, the resources of all attachments are free again.",
}

// section writes a part for each check with a verdict, with what came from each list.
func section(b *strings.Builder, all []outcome, v cni.Verdict) {
	var checks []string
	for _, o := range all {
		if o.Verdict == v && !slices.Contains(checks, o.Check) {
			checks = append(checks, o.Check)
		}
	}
	for _, check := range checks {
		lists := map[string][]string{} // by what came
		var came []string
		where := ""
		for _, o := range all {
			if o.Check != check || o.Verdict != v {
				continue
			}
			where = o.Section
			if lists[o.Error] == nil {
				came = append(came, o.Error)
			}
			if !slices.Contains(lists[o.Error], o.List) {
				lists[o.Error] = append(lists[o.Error], o.List)
			}
		}
		fmt.Fprintf(b, "\n### %s\n\nSpecification, %s: %s\n\n", check, where, cmp.Or(wants[check], "see there."))
		for _, c := range came {
			fmt.Fprintf(b, "- %s: `%s`\n", strings.Join(lists[c], "; "), strings.ReplaceAll(c, "`", "'"))
		}
	}
}
