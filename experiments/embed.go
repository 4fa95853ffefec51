// Package experiments contains the built-in studies, as files. Package experiment parses the
// experiments that they have.
//
// The first document of a file is an experiment, and each further document, a suite of the study,
// is another one: its name is that of the study, a dash and that of the document, and it has the
// keys of the first document that it does not set itself, unless it sets them to null. A study whose
// first document has no cases is measured by its suites only.
package experiments

import (
	"embed"
	"fmt"
	"path"
	"slices"
	"strings"

	"unnest.io/unnest/internal/yamldoc"
)

// FS has the files, named <study>.yaml.
//
//go:embed *.yaml
var FS embed.FS

// Studies returns the names of the studies in alphabetical order.
func Studies() []string {
	var names []string
	entries, _ := FS.ReadDir(".") // the embedded root is always readable
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	slices.Sort(names)
	return names
}

// Suites returns the names of the suites of a study, in the order of its file.
func Suites(study string) []string {
	var names []string
	for _, suite := range read(study)[1:] {
		names = append(names, suite.value("name"))
	}
	return names
}

// List returns the names of the experiments of all studies in alphabetical order.
func List() []string {
	var names []string
	for _, study := range Studies() {
		if HasCases(study) {
			names = append(names, study)
		}
		for _, suite := range Suites(study) {
			names = append(names, study+"-"+suite)
		}
	}
	slices.Sort(names)
	return names
}

// Title returns the title of a study.
func Title(study string) string { return read(study)[0].value("title") }

// HasCases reports whether a study can be measured without a choice of its suites.
func HasCases(study string) bool { return read(study)[0].has("cases") }

// Command returns the arguments of unnest bench that choose the experiment called name. It is empty
// if there is no such experiment.
func Command(name string) string {
	for _, study := range Studies() {
		if name == study && HasCases(study) {
			return study
		}
		if rest, ok := strings.CutPrefix(name, study+"-"); ok {
			if arguments := suiteArguments(rest, Suites(study)); arguments != "" {
				return study + arguments
			}
		}
	}
	return replaced[name]
}

// suiteArguments returns the arguments that choose the suites whose names, with dashes between them,
// are names.
func suiteArguments(names string, suites []string) string {
	if slices.Contains(suites, names) {
		return " --suite " + names
	}
	for _, suite := range suites {
		if rest, ok := strings.CutPrefix(names, suite+"-"); ok {
			if arguments := suiteArguments(rest, suites); arguments != "" {
				return " --suite " + suite + arguments
			}
		}
	}
	return ""
}

// replaced has the arguments for names of earlier versions that do not begin with that of a study.
var replaced = map[string]string{"latency": "brfusion --suite latency"}

// Open returns the file of the experiment called name, and its path for errors.
func Open(name string) (file string, data []byte, err error) {
	study, suite, chosen := strings.Cut(Command(name), " --suite ")
	if study == "" || !slices.Contains(List(), name) {
		return "", nil, fmt.Errorf("no experiment %q: there are %s", name, strings.Join(List(), ", "))
	}
	if !chosen {
		return Compose(study)
	}
	return Compose(study, suite)
}

// Compose returns the experiment of the suites of a study, or of the study itself without suites,
// and the path of its file for errors. Several suites become one experiment with all their cases if
// they differ in nothing else than title and description.
func Compose(study string, suites ...string) (file string, data []byte, err error) {
	file = path.Join("experiments", study+".yaml")
	parts := read(study)
	if len(suites) == 0 {
		if !parts[0].has("cases") {
			return "", nil, fmt.Errorf("study %s: name one of its suites by --suite: %s", study, strings.Join(Suites(study), ", "))
		}
		return file, parts[0].text(), nil
	}
	var all document
	for i, name := range suites {
		at := slices.Index(Suites(study), name)
		switch {
		case at < 0 && len(parts) == 1:
			return "", nil, fmt.Errorf("study %s: no suite %q: it has no suites", study, name)
		case at < 0:
			return "", nil, fmt.Errorf("study %s: no suite %q: %s", study, name, yamldoc.Suggest(name, Suites(study)))
		case slices.Contains(suites[:i], name):
			return "", nil, fmt.Errorf("study %s: suite %s is given twice", study, name)
		}
		one := parts[0].with(parts[at+1])
		if i == 0 {
			all = one
			continue
		}
		if key := all.differs(one); key != "" {
			return "", nil, fmt.Errorf("study %s: suites %s and %s differ in %s: run them one after another", study, suites[0], name, key)
		}
		all = all.add(parts[0], one)
	}
	return file, all.set("name", "name: "+study+"-"+strings.Join(suites, "-")+"\n").text(), nil
}

// document is one document of a study's file, as its top-level keys in their order.
type document []key

// key is a top-level key with the lines of its value, the first of which has the key.
type key struct{ name, lines string }

// read returns the documents of a study's file, at least one.
func read(study string) []document {
	data, _ := FS.ReadFile(study + ".yaml") // a study is not there: one document without keys
	var all []document
	for text := range strings.SplitSeq(string(data), "---\n") {
		all = append(all, split(text))
	}
	return all
}

// split divides a document into its top-level keys.
func split(text string) (d document) {
	for line := range strings.Lines(text) {
		if name, _, ok := strings.Cut(line, ":"); ok && line[0] >= 'a' && line[0] <= 'z' {
			d = append(d, key{name, line})
		} else if len(d) > 0 {
			d[len(d)-1].lines += line
		}
	}
	return d
}

func (d document) at(name string) int {
	return slices.IndexFunc(d, func(k key) bool { return k.name == name })
}

func (d document) has(name string) bool { return d.at(name) >= 0 }

// lines returns the lines of a key, empty if there is none.
func (d document) lines(name string) string {
	if i := d.at(name); i >= 0 {
		return d[i].lines
	}
	return ""
}

// value returns the value of a key on one line.
func (d document) value(name string) string {
	_, value, _ := strings.Cut(d.lines(name), ":")
	return strings.TrimSpace(value)
}

// set returns d with other lines of a key.
func (d document) set(name, lines string) document {
	d = slices.Clone(d)
	if i := d.at(name); i >= 0 {
		d[i].lines = lines
		return d
	}
	return append(d, key{name, lines})
}

// with returns d with the keys of suite instead of its own, and without those that are null there.
func (d document) with(suite document) document {
	for _, k := range suite {
		d = d.set(k.name, k.lines)
	}
	return slices.DeleteFunc(d, func(k key) bool { return d.value(k.name) == "null" })
}

// differs returns the first key in which two suites differ that cannot be put together.
func (d document) differs(other document) string {
	for _, k := range slices.Concat(d, other) {
		if !slices.Contains([]string{"name", "title", "description", "cases"}, k.name) && d.lines(k.name) != other.lines(k.name) {
			return k.name
		}
	}
	return ""
}

// add returns d with the cases of other as well, under the title of the study.
func (d document) add(study, other document) document {
	_, cases, _ := strings.Cut(other.lines("cases"), "\n")
	return d.set("cases", d.lines("cases")+cases).
		set("title", study.lines("title")).set("description", study.lines("description"))
}

func (d document) text() []byte {
	var text strings.Builder
	for _, k := range d {
		text.WriteString(k.lines)
	}
	return []byte(text.String())
}
