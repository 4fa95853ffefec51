package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// environment.md has exactly the environment variables that the programs read, and the exit codes of the command lines.
func TestEnvironment(t *testing.T) {
	read := func(path string) string {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	want := map[string]string{} // by variable or code: the file that has it
	call := regexp.MustCompile(`os\.(?:Getenv|LookupEnv)\((?:"(\w+)"|(\w+))\)`)
	for _, root := range []string{"../cmd", "../internal"} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(filepath.Dir(path), "test") {
				return err // packages for tests are no programs
			}
			source := read(path)
			found := call.FindAllStringSubmatch(source, -1)
			for _, m := range found {
				name := m[1]
				if value := regexp.MustCompile(`(?m)\b` + m[2] + ` += "(\w+)"$`).FindStringSubmatch(source); m[2] != "" && value != nil {
					name = value[1]
				}
				want[name] = path
			}
			if n := strings.Count(source, "os.Getenv(") + strings.Count(source, "os.LookupEnv(") + strings.Count(source, "os.ExpandEnv("); n != len(found) {
				t.Errorf("%s reads %d variables; this test finds the names of %d", path, n, len(found))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	variables := len(want)
	for _, path := range []string{"../internal/cli/cli.go", "../internal/cli/console/console.go"} {
		for _, m := range regexp.MustCompile(`(?m)^\texit\w+ += (\d+)$`).FindAllStringSubmatch(read(path), -1) {
			want[m[1]] = path
		}
	}
	rows := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Z_]+|[0-9]+)`").FindAllStringSubmatch(read("environment.md"), -1) {
		rows[m[1]] = true
		if want[m[1]] == "" {
			t.Errorf("environment.md has %s, which no program has", m[1])
		}
	}
	for name, path := range want {
		if !rows[name] {
			t.Errorf("environment.md lacks %q of %s", name, path)
		}
	}
	if variables < 15 || len(want)-variables < 6 {
		t.Errorf("found %d variables and %d exit codes", variables, len(want)-variables)
	}
}
