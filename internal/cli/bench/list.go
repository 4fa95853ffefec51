package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"unnest.io/unnest/experiments"
	"unnest.io/unnest/internal/measure/experiment"
)

// list prints the names and titles of the built-in studies.
func list(w io.Writer) error {
	for _, study := range experiments.Studies() {
		title := experiments.Title(study)
		if suites := experiments.Suites(study); len(suites) > 0 {
			title += " [--suite " + strings.Join(suites, ", ") + "]"
		}
		if _, err := fmt.Fprintf(w, "%-15s %s\n", study, title); err != nil {
			return err
		}
	}
	return nil
}

// listStudy prints the cases of a study, and those of its suites.
func listStudy(w io.Writer, study string) error {
	if !isStudy(study) {
		spec, err := load(study, "")
		if err != nil {
			return err
		}
		return listCases(w, study, spec)
	}
	if err := checkStudy(study); err != nil {
		return err
	}
	if experiments.HasCases(study) {
		spec, err := builtIn(study)
		if err != nil {
			return err
		}
		if err := listCases(w, study, spec); err != nil {
			return err
		}
	}
	for _, suite := range experiments.Suites(study) {
		spec, err := builtIn(study, suite)
		if err != nil {
			return err
		}
		if err := listCases(w, study+" --suite "+suite, spec); err != nil {
			return err
		}
	}
	return nil
}

// listCases prints the title and the cases of an experiment, which is chosen by arguments.
func listCases(w io.Writer, arguments string, s *experiment.Spec) error {
	var names []string
	for _, c := range s.Cases {
		if !slices.Contains(names, c.Group) {
			names = append(names, c.Group)
		}
	}
	_, err := fmt.Fprintf(w, "%s: %s\n  --case %s\n", arguments, s.Title, strings.Join(names, ", "))
	return err
}

func builtIn(study string, suites ...string) (*experiment.Spec, error) {
	file, data, err := experiments.Compose(study, suites...)
	if err != nil {
		return nil, err
	}
	return experiment.Parse(file, data)
}
