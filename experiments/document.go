package experiments

import (
	"slices"
	"strings"
)

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
