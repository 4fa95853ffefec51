package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	services = "[It] [sig-network] Services should work [Conformance] [sig-network, Conformance]"
	pods     = "[It] [sig-node] Pods should be updated [NodeConformance] [Conformance]"
	policy   = "[It] [sig-network] Netpol should deny | all [Feature:NetworkPolicy]"
)

func junit(t *testing.T, cases string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "junit.xml")
	text := `<testsuites><testsuite><properties><property name="unnest.date" value="2026-11-23"></property>` +
		`<property name="RandomSeed" value="1"></property></properties>` + cases + `</testsuite></testsuites>`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func testcaseXML(name, status, rest string) string {
	return `<testcase name="` + name + `" status="` + status + `" time="1.6">` + rest + `</testcase>`
}

// The page counts each test in scope once, as in the last run that has not left it out.
func TestPublish(t *testing.T) {
	first := junit(t, testcaseXML(services, "failed", `<failure message="">[FAILED] no answer&#xA;of pod&#xA;at line 5</failure>`)+
		testcaseXML(pods, "passed", "")+testcaseXML("[It] [sig-storage] Volumes [Conformance]", "failed", ""))
	second := junit(t, testcaseXML(pods, "skipped", "<skipped></skipped>")+testcaseXML(policy, "panicked", "")+
		testcaseXML("[It] [sig-network] Proxy may not [Conformance]", "skipped", "")+
		testcaseXML("[It] [sig-network] HostPort [Feature:Networking-Performance]", "skipped", "<skipped></skipped>")+
		testcaseXML("[It] [sig-network] Firewall", "skipped", `<skipped message="skipped - Only for gce"></skipped>`)+
		testcaseXML("[It] [sig-network] DNS is slow [Conformance]", "timedout", `<failure message="A suite timeout occurred"></failure>`))
	kept, page := filepath.Join(t.TempDir(), "kept.xml"), filepath.Join(t.TempDir(), "page.md")
	third := junit(t, testcaseXML("[It] [sig-network] Firewall", "skipped", "<skipped></skipped>"))
	for _, paths := range [][]string{{first}, {third, second}, {third}, nil} {
		if err := publish(kept, page, paths); err != nil {
			t.Fatal(err)
		}
	}
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"and of Pods | 1 | 1 | 2 |\n", "| others of sig-network | 0 | 0 | 2 |\n", "Netpol`) | 0 | 1 | 0 |\n", "| date | 2026-11-23 |\n",
		"## Failed\n\n| test | reason |\n|---|---|\n| [sig-network] Netpol should deny \\| all [Feature:NetworkPolicy] | no message |\n" +
			"| [sig-network] Services should work [Conformance] [sig-network, Conformance] | no answer of pod |\n\n",
		"## Left out\n\n| test | reason |\n|---|---|\n| [sig-network] DNS is slow [Conformance] | the time of the run was over |\n" +
			"| [sig-network] Firewall | skips itself: Only for gce |\n| [sig-network] HostPort [Feature:Networking-Performance] | not run: slow |\n" +
			"| [sig-network] Proxy may not [Conformance] | not run yet |\n",
		"## Passed\n\n| test | s |\n|---|---|\n| [sig-node] Pods should be updated [NodeConformance] [Conformance] | 2 |\n",
	} {
		if !strings.Contains(string(content), want) {
			t.Errorf("the page lacks %q:\n%s", want, content)
		}
	}
	for _, alien := range []string{"sig-storage", "RandomSeed"} {
		if strings.Contains(string(content), alien) {
			t.Errorf("the page has %q", alien)
		}
	}
}

func TestNoResults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing.xml")
	if err := publish(filepath.Join(t.TempDir(), "kept.xml"), "", []string{path}); err == nil || !strings.Contains(err.Error(), "read results of "+path) {
		t.Errorf("got %v", err)
	}
}
