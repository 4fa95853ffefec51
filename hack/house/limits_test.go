package house

import (
	"bytes"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The limits. A change that exceeds one makes the code smaller, or says in docs/decisions why it
// cannot. The first two fall when code goes: the aim of the second is 90,000 lines.
const (
	maxPackage      = 3_810   // hand-written lines of the largest package, without tests
	maxLines        = 125_590 // hand-written lines of all Go code, without tests
	maxUpward       = 12      // upward arrows between the files of one package, see arrows
	maxADD          = 21      // packages of ours in unnest-cni, which a pod's ADD passes
	maxExperiments  = 19      // files in experiments
	maxTargets      = 25      // documented targets of make
	maxPlanFlags    = 20      // flags of unnest plan
	maxArchitecture = 100     // lines of ARCHITECTURE.md
)

// limit fails if value exceeds the limit, and logs both.
func limit(t *testing.T, what string, value, most int) {
	t.Helper()
	if value > most {
		t.Errorf("%s: %d, want at most %d", what, value, most)
		return
	}
	t.Logf("%s: %d of %d", what, value, most)
}

func TestLines(t *testing.T) {
	lines, all := map[string]int{}, 0
	for _, path := range handWritten(t) {
		n := strings.Count(read(t, path), "\n")
		lines[filepath.Dir(path)] += n
		all += n
	}
	largest := ""
	for dir, n := range lines {
		if n > lines[largest] || n == lines[largest] && dir < largest {
			largest = dir
		}
	}
	for dir, n := range lines {
		if n > maxPackage && dir != largest {
			t.Errorf("package %s has %d lines", dir, n)
		}
	}
	limit(t, "lines of the largest package, "+largest, lines[largest], maxPackage)
	limit(t, "hand-written lines without tests", all, maxLines)
}

// handWritten returns the Go files that are neither tests nor generated.
func handWritten(t *testing.T) []string {
	t.Helper()
	generated := regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
	return slices.DeleteFunc(slices.Clone(must(files())(t)), func(path string) bool {
		return !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || generated.MatchString(read(t, path))
	})
}

func TestArrowsBetweenFiles(t *testing.T) {
	var worst []directory
	byDir := map[string][]string{}
	for _, path := range handWritten(t) {
		byDir[filepath.Dir(path)] = append(byDir[filepath.Dir(path)], path)
	}
	for dir, paths := range byDir {
		upward, err := arrows(paths)
		if err != nil {
			t.Fatal(err)
		}
		worst = append(worst, directory{dir, upward})
	}
	slices.SortFunc(worst, compare)
	for _, d := range worst[:5] {
		limit(t, "upward arrows between the files of "+d.path, d.upward, maxUpward)
	}
}

func TestPackagesOfAnADD(t *testing.T) {
	out := must(output("go", "list", "-deps", "./cmd/unnest-cni"))(t)
	limit(t, "packages of ours in cmd/unnest-cni", strings.Count("\n"+string(out), "\n"+module), maxADD)
}

func TestExperiments(t *testing.T) {
	studies := must(filepath.Glob(filepath.Join(root, "experiments/*.yaml")))(t)
	limit(t, "files in experiments", len(studies), maxExperiments)
}

func TestTargets(t *testing.T) {
	documented := regexp.MustCompile(`(?m)^[a-z0-9-]+:.*## `).FindAllString(read(t, "Makefile"), -1)
	limit(t, "documented targets of make", len(documented), maxTargets)
}

func TestPlanFlags(t *testing.T) {
	unnest := filepath.Join(t.TempDir(), "unnest")
	// As make build does, whose packages are in the cache: other flags compile all of them again.
	if _, err := output("env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-buildvcs=false", "-o", unnest, "./cmd/unnest"); err != nil {
		t.Fatal(err)
	}
	help, _, _ := bytes.Cut(must(output(unnest, "plan", "--help"))(t), []byte("\nGlobal Flags:"))
	flags := regexp.MustCompile(`(?m)^ +(-\w, )?--[a-z0-9-]+`).FindAllString(string(help), -1)
	flags = slices.DeleteFunc(flags, func(f string) bool { return strings.HasSuffix(f, "--help") })
	if len(flags) == 0 {
		t.Fatalf("unnest plan --help shows no flags:\n%s", help)
	}
	limit(t, "flags of unnest plan", len(flags), maxPlanFlags)
}

func TestLengthOfArchitecture(t *testing.T) {
	limit(t, "lines of ARCHITECTURE.md", strings.Count(read(t, "ARCHITECTURE.md"), "\n"), maxArchitecture)
}
