//go:build kubernetes

package e2e

import (
	"cmp"
	"context"
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// upstreamTests are the tests of upstream that run by default, in this order. hack/conformance writes a page about them.
var upstreamTests = []string{
	`\[sig-network\] Services .*\[Conformance\]`,
	`\[sig-network\].*\[Conformance\]|\[sig-node\] Pods .*\[Conformance\]`,
	`\[sig-network\] (Services|Networking|DNS|Connectivity|Netpol API) `,
	`\[sig-network\] [^N]|\[sig-network\] NoSNAT`,
	`\[sig-network\] Netpol `,
}

// upstreamLeftOut are tests that the cluster cannot pass. hack/conformance has the reasons.
const upstreamLeftOut = `\[(Disruptive|Alpha|Privileged|Provider:GCE)\]|\[Feature:(LoadBalancer|Networking-|KubeProxy|PerformanceDNS|OffByDefault)|DNS configMap|node-(pod communication|Service): sctp`

// The tags of tests that need a cluster with both families, and of tests that run alone.
const (
	upstreamDualStack = "[Feature:IPv6DualStack]"
	upstreamSerial    = "[Serial]"
)

// upstreamGroup is how many tests one process runs, and writes the results of when it has ended.
const upstreamGroup = 3

// upstream runs e2e.test, and keeps its results. A test that has passed according to the results that
// are there already does not run again. dual: the cluster has both families,
// and runs only the tests that need them.
func (k *kubernetes) upstream(dual bool) {
	results := cmp.Or(os.Getenv("UNNEST_E2E_RESULTS"), k.t.TempDir())
	limit, err := time.ParseDuration(cmp.Or(os.Getenv("UNNEST_E2E_TIME"), "3h"))
	k.check(err)
	lanes, err := strconv.Atoi(cmp.Or(os.Getenv("UNNEST_E2E_LANES"), "4"))
	k.check(err)
	k.check(os.MkdirAll(results, 0o755))
	program := filepath.Join(k.binaries, "kubernetes-e2e", "e2e.test")
	groups, serial := upstreamGroups(mustRun(k.t, program, "--list-tests"), k.outcomes(results), dual)
	ctx, cancel := context.WithTimeout(k.t.Context(), limit)
	defer cancel()
	var next atomic.Int64
	var all sync.WaitGroup
	for range lanes {
		all.Go(func() {
			for n := next.Add(1); n <= int64(len(groups)) && ctx.Err() == nil; n = next.Add(1) {
				k.upstreamProcess(ctx, program, results, groups[n-1])
			}
		})
	}
	all.Wait()
	for _, titles := range serial {
		if ctx.Err() == nil {
			k.upstreamProcess(ctx, program, results, titles)
		}
	}
	if !dual {
		k.check(os.WriteFile(filepath.Join(results, "junit_facts.xml"), k.facts(), 0o644))
	}
	outcomes := k.outcomes(results)
	for _, title := range slices.Concat(append(groups, serial...)...) {
		if got := cmp.Or(outcomes[title], "not run"); got != "passed" {
			k.t.Errorf("%s: %s", title, got)
		}
	}
}

// upstreamGroups returns the titles of the tests to run, in order. Those in serial run one after the other.
// list is what e2e.test lists.
func upstreamGroups(list string, outcomes map[string]string, dual bool) (groups, serial [][]string) {
	patterns := upstreamTests
	if focus := os.Getenv("UNNEST_E2E_FOCUS"); focus != "" {
		patterns = []string{focus}
	}
	taken, without := map[string]bool{}, regexp.MustCompile(upstreamLeftOut)
	for _, pattern := range patterns {
		focus := regexp.MustCompile(pattern)
		var titles, alone []string
		for line := range strings.Lines(list) {
			_, title, _ := strings.Cut(strings.TrimSpace(line), ": ")
			switch {
			case !focus.MatchString(title) || without.MatchString(title) || strings.Contains(title, upstreamDualStack) != dual || taken[title] || outcomes[title] == "passed":
				continue
			case strings.Contains(title, upstreamSerial):
				alone = append(alone, title)
			default:
				titles = append(titles, title)
			}
			taken[title] = true
		}
		groups = slices.AppendSeq(groups, slices.Chunk(titles, upstreamGroup))
		serial = slices.AppendSeq(serial, slices.Chunk(alone, upstreamGroup))
	}
	return groups, serial
}

// upstreamProcess runs some tests, and keeps a log and a JUnit file without the tests that were not asked for.
func (k *kubernetes) upstreamProcess(ctx context.Context, program, results string, titles []string) {
	prefix := time.Now().UTC().Format("20060102-150405.000000000")
	log, err := os.Create(filepath.Join(results, "e2e-"+prefix+".log"))
	if err != nil {
		k.t.Error(err)
		return
	}
	defer log.Close()
	var focus []string
	for _, title := range titles {
		focus = append(focus, regexp.QuoteMeta(title))
	}
	deadline, _ := ctx.Deadline()
	cmd := exec.Command(program,
		"--kubeconfig="+k.config, "--kubectl-path="+k.kubectl, "--provider=skeleton", "--num-nodes=2", "--dns-domain=cluster.local",
		"--report-dir="+results, "--report-prefix="+prefix, "--ginkgo.focus=("+strings.Join(focus, "|")+`)\s*$`, // some titles end with a space
		"--ginkgo.timeout="+time.Until(deadline).String(), "--ginkgo.no-color", "--ginkgo.silence-skips", "--disable-log-dump")
	cmd.Dir, cmd.Stdout, cmd.Stderr = results, log, log
	// After Ctrl-C the tests must not go on without the cluster, and report that as failures.
	runtime.LockOSThread() // Pdeathsig refers to the thread
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	begin := time.Now()
	err = cmd.Run()
	k.t.Logf("%.0f s, %v: %s: %s", time.Since(begin).Seconds(), err, log.Name(), strings.Join(titles, "; "))
}

// outcomes returns the status of each test that the JUnit files in a directory have, which Ginkgo has not skipped.
func (k *kubernetes) outcomes(dir string) map[string]string {
	paths, err := filepath.Glob(filepath.Join(dir, "junit_*.xml"))
	k.check(err)
	all := map[string]string{}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		k.check(err)
		var file struct {
			Cases []struct {
				Name   string `xml:"name,attr"`
				Status string `xml:"status,attr"`
			} `xml:"testsuite>testcase"`
		}
		k.check(xml.Unmarshal(content, &file))
		for _, c := range file.Cases {
			if c.Status != "skipped" {
				all[strings.TrimSpace(strings.TrimPrefix(c.Name, "[It] "))] = c.Status
			}
		}
	}
	return all
}
