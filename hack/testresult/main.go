// Command testresult reads the events of a run of all tests, in which failed tests ran a second
// time. It names these with the output of their first failure. It fails if a test failed twice,
// raced, did not end or was skipped, and if a test failed at first that hack/flaky names: it did so before.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: testresult FILE")
		os.Exit(2)
	}
	if err := check(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func check(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := read(f)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	list, err := os.ReadFile(flakyFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text, problem := r.judge(flaky(string(list)))
	if _, err := os.Stdout.WriteString(text); err != nil {
		return err
	}
	return problem
}
