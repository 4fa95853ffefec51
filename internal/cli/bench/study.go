package bench

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"unnest.io/unnest/experiments"
	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/measure/bench"
	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/suite"
)

// load reads an experiment: a file if name has a slash or a file extension, else a
// built-in study, or the named suites of it. The profile overrides that of the file unless it is empty.
func load(name string, profile suite.Profile, suites ...string) (*experiment.Spec, error) {
	file, data, err := open(name, suites...)
	if err != nil {
		return nil, err
	}
	spec, err := experiment.ParseProfile(file, data, profile)
	return checked(spec, err)
}

func open(name string, suites ...string) (file string, data []byte, err error) {
	if isStudy(name) {
		if err := checkStudy(name); err != nil {
			return "", nil, err
		}
		if file, data, err = experiments.Compose(name, suites...); err != nil {
			err = usage.Wrap(err)
		}
		return file, data, err
	}
	if len(suites) > 0 {
		return "", nil, usage.Errorf("--suite %s: %s is a file: only studies of unnest have suites", suites[0], name)
	}
	if data, err = os.ReadFile(name); err != nil {
		return "", nil, fmt.Errorf("read experiment: %w: name a file, or one that unnest bench --list shows", err)
	}
	return name, data, nil
}

// isStudy reports whether an argument is the name of a study, and not a path.
func isStudy(name string) bool { return !strings.ContainsRune(name, '/') && filepath.Ext(name) == "" }

// checkStudy refuses names of studies that do not exist, and says what replaces those of earlier
// versions.
func checkStudy(name string) error {
	known := experiments.Studies()
	if slices.Contains(known, name) {
		return nil
	}
	if now := experiments.Command(name); now != "" {
		return usage.Errorf("no study %q any more: run unnest bench %s", name, now)
	}
	return usage.Errorf("no study %q%s there are %s; for a file give a path such as ./%s.yaml",
		name, cmp.Or(usage.Suggest(name, "", known), ":"), strings.Join(known, ", "), name)
}

// checked refuses an experiment that cannot be brought up.
func checked(spec *experiment.Spec, err error) (*experiment.Spec, error) {
	if err == nil {
		err = bench.Check(spec)
	}
	if err != nil {
		return nil, err
	}
	return spec, nil
}

// drawSeed returns a random seed other than 0.
func drawSeed() uint64 { return rand.Uint64() | 1 }

// completeExperiment completes the argument: a study, or a file.
func completeExperiment(_ *cobra.Command, given []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	switch {
	case len(given) > 0:
		return nil, cobra.ShellCompDirectiveNoFileComp
	case !isStudy(word) || word == ".":
		return []cobra.Completion{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
	}
	return experiments.Studies(), cobra.ShellCompDirectiveNoFileComp
}

// completeSuite completes a suite of the study that the command line names.
func completeSuite(_ *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(given) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return experiments.Suites(given[0]), cobra.ShellCompDirectiveNoFileComp
}
