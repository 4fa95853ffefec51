package main

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
)

// reasons say why tests with an outcome fail or are left out; the first that matches a title counts.
var reasons = []struct {
	outcome string
	title   *regexp.Regexp
	why     string
}{
	{leftOut, regexp.MustCompile(`node-(pod communication|Service): sctp`), "upstream skips it: its test cannot send SCTP from a node"},
	{leftOut, tagged(`Feature:IPv6DualStack`), "not run: needs a cluster with both families"},
	{leftOut, tagged(`Feature:LoadBalancer`), "needs the load balancer of a cloud"},
	{leftOut, tagged(`Provider:GCE|Feature:KubeProxyDaemonSet\w+`), "needs Google's cloud"},
	{leftOut, tagged(`Feature:Networking-(IPv4|IPv6|DNS)`), "needs the Internet"},
	{leftOut, tagged(`Alpha|Feature:OffByDefault`), "needs a feature of Kubernetes that is off by default"},
	{leftOut, tagged(`Privileged`), "needs an image that the nodes do not have"},
	{leftOut, tagged(`Disruptive`), "not run: disrupts the cluster"},
	{leftOut, regexp.MustCompile(`DNS configMap`), "needs a DNS server that runs as pods"},
	{leftOut, tagged(`Feature:PerformanceDNS|Feature:Networking-Performance`), "not run: slow"},
	{leftOut, tagged(`Feature:KubeProxyNFAcct`), "not run: is about metrics of kube-proxy"},
	{failed, regexp.MustCompile(`should preserve source pod IP`), "by design: a backend sees a [service address](../brfusion.md#services) in place of the client's"},
}

// tagged matches the titles with a tag.
func tagged(tags string) *regexp.Regexp { return regexp.MustCompile(`\[(` + tags + `)\]`) }

const title = `# Upstream's tests of Kubernetes' network

`

const intro = `For people who want to know which promises of Kubernetes hold for pods with a NIC of their own. This page is written
by ` + "`go run ./hack/conformance`" + ` from the results of ` + "`make test-kubernetes-conformance`" + `, which runs upstream's
` + "`e2e.test`" + ` on a [cluster](../kubernetes.md) whose default network is BrFusion: two nodes, kube-proxy, no other network plugin.
The tests of ` + "`[Feature:IPv6DualStack]`" + ` run on a second cluster, which has IPv4 and IPv6.
The command runs the tests that have not passed yet. The page has the last result of each test.

`

const images = `No registry can be reached from the machine of the run, so the nodes have stand-ins for upstream's images: agnhost is
built from upstream's source and stands on Debian instead of Alpine. Its most used commands are in a second program, which starts faster. jessie-dnsutils is the same image; busybox and pause are Debian's busybox; nginx and httpd are agnhost,
because the tests that name them only want a container that runs. Upstream waits five minutes for a pod, also where processors are
emulated and have other work. The network's ` + "[list of Service ranges](../brfusion.md#services)" + ` has 203.0.113.0/24, too: the external addresses of the tests' Services.

`

// render returns the page about the results.
func render(s suites) string {
	var b strings.Builder
	count := map[string]int{}
	for _, c := range s.Cases {
		count[c.outcome()]++
	}
	fmt.Fprintf(&b, "%s**%d of the %d tests that were run passed.**\n\n%s", title, count[passed], count[passed]+count[failed], intro)
	conformance, netpol, others := split(s.Cases)
	b.WriteString("| tests | passed | failed | left out |\n|---|---|---|---|\n")
	summary(&b, "`[Conformance]` of sig-network, and of Pods", conformance)
	summary(&b, "others of sig-network", others)
	summary(&b, "NetworkPolicy (`[sig-network] Netpol`)", netpol)
	b.WriteString("\n" + images)
	if len(s.Facts) > 0 {
		b.WriteString("| | |\n|---|---|\n")
		for _, p := range s.Facts {
			fmt.Fprintf(&b, "| %s | %s |\n", strings.TrimPrefix(p.Name, "unnest."), cell(p.Value))
		}
		b.WriteString("\n")
	}
	listed(&b, "Failed", failed, s.Cases)
	listed(&b, "Left out", leftOut, s.Cases)
	listed(&b, "Passed", passed, s.Cases)
	return strings.TrimSuffix(b.String(), "\n")
}

func split(all []testcase) (conformance, netpol, others []testcase) {
	for _, c := range all {
		switch {
		case c.netpol():
			netpol = append(netpol, c)
		case c.conformance():
			conformance = append(conformance, c)
		default:
			others = append(others, c)
		}
	}
	return conformance, netpol, others
}

func summary(b *strings.Builder, name string, all []testcase) {
	n := map[string]int{}
	for _, c := range all {
		n[c.outcome()]++
	}
	fmt.Fprintf(b, "| %s | %d | %d | %d |\n", name, n[passed], n[failed], n[leftOut])
}

// listed lists the tests with an outcome, with the reason for each that has not passed.
func listed(b *strings.Builder, heading, outcome string, all []testcase) {
	column, begun := "reason", false
	if outcome == passed {
		column = "s"
	}
	for _, c := range all {
		if c.outcome() != outcome {
			continue
		}
		if !begun {
			fmt.Fprintf(b, "## %s\n\n| test | %s |\n|---|---|\n", heading, column)
			begun = true
		}
		value := fmt.Sprintf("%.0f", c.Seconds)
		if outcome != passed {
			value = c.reason()
		}
		fmt.Fprintf(b, "| %s | %s |\n", cell(c.title()), cell(value))
	}
	if begun {
		b.WriteString("\n")
	}
}

// reason says why the test has not passed: what we know, or else the test's message.
func (c testcase) reason() string {
	for _, r := range reasons {
		if r.outcome == c.outcome() && r.title.MatchString(c.title()) {
			return r.why
		}
	}
	switch {
	case c.cutOff(), c.Status == "interrupted":
		return "the time of the run was over"
	case c.skipsItself():
		return "skips itself: " + strings.TrimPrefix(c.Skipped.Message, selfSkipped)
	case c.outcome() == leftOut:
		return "not run yet"
	case c.Failure == nil:
		return "no message"
	}
	if late.MatchString(c.Failure.Message) {
		return "a pod was not ready in five minutes, the limit of upstream; see the load of the host"
	}
	return cmp.Or(c.Failure.Message, "no message")
}

// late matches the messages of tests that have waited for pods.
var late = regexp.MustCompile(`^Timed out after 300.* expected pod to be running and ready|(^|: )error waiting for deployment`)

// cell escapes what ends a cell of a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
