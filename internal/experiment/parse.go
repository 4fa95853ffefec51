package experiment

import (
	"time"

	"github.com/goccy/go-yaml/ast"

	"unnest/internal/stack"
	"unnest/internal/workload"
)

// file is an experiment file as it is written, before its cases are spread
// over their sizes.
type file struct {
	*document
	spec    Spec
	timeout time.Duration
	groups  []group
}

// group is one entry of cases.
type group struct {
	path     string
	name     string
	title    string
	workload string
	params   workload.Params // without the size
	sizes    []int
	timeout  time.Duration // 0: that of the file
}

// Parse reads an experiment file; name stands for it in errors. Each error says
// file, line and key. Left out, a key has this value: title the name,
// baselines the first configuration, guest 1 VCPU and 1GiB, repetitions 6,
// warmup 1, retries 2, timeout 60s. A configuration without stack is the one
// that the papers call by its name (see stack.Named).
func Parse(name string, data []byte) (*Spec, error) {
	root, err := parseYAML(name, data)
	if err != nil {
		return nil, err
	}
	f := &file{
		document: &document{file: name, lines: map[string]int{}},
		timeout:  time.Minute,
		spec: Spec{
			Text:  string(data),
			Guest: Guest{VCPUs: 1, Memory: 1 << 30}, Repetitions: minRepetitions, Warmup: 1, Retries: 2,
		},
	}
	f.decode(root)
	f.check()
	if err := f.err(); err != nil {
		return nil, err
	}
	return &f.spec, nil
}

// decode fills the file from YAML.
func (f *file) decode(root ast.Node) {
	s := &f.spec
	f.mapping("", root, map[string]key{
		"name":           scalar(f.document, &s.Name, parseName),
		"title":          scalar(f.document, &s.Title, parseText),
		"description":    scalar(f.document, &s.Description, parseAny),
		"suite":          scalar(f.document, &s.Suite, parseName),
		"baselines":      scalars(f.document, &s.Baselines, parseText),
		"guest":          f.guest,
		"configurations": f.list(f.configuration),
		"cases":          f.list(f.group),
		"repetitions":    scalar(f.document, &s.Repetitions, count(1, maxRepetitions)),
		"warmup":         scalar(f.document, &s.Warmup, count(0, 100)),
		"retries":        scalar(f.document, &s.Retries, count(0, 100)),
		"timeout":        scalar(f.document, &f.timeout, parseDuration),
		"seed":           scalar(f.document, &s.Seed, parseSeed),
	})
}

func (f *file) guest(path string, n ast.Node) {
	f.mapping(path, n, map[string]key{
		"vcpus":  scalar(f.document, &f.spec.Guest.VCPUs, count(1, 1024)),
		"memory": scalar(f.document, &f.spec.Guest.Memory, parseBytes),
	})
}

func (f *file) configuration(path string, n ast.Node) {
	var c stack.Configuration
	var network, storage string
	f.mapping(path, n, map[string]key{
		"name":    scalar(f.document, &c.Name, parseName),
		"stack":   scalar(f.document, &c.Stack, stack.Parse),
		"network": scalar(f.document, &network, parseText),
		"storage": scalar(f.document, &storage, parseText),
	})
	if known, ok := stack.Named(c.Name); ok && !f.has(join(path, "stack")) {
		c = known
	}
	if network != "" {
		c.Network = stack.Network(network)
	}
	if storage != "" {
		c.Storage = stack.Storage(storage)
	}
	f.spec.Configurations = append(f.spec.Configurations, c)
}

func (f *file) group(path string, n ast.Node) {
	g := group{path: path}
	p := &g.params
	f.mapping(path, n, map[string]key{
		"name":     scalar(f.document, &g.name, parseName),
		"title":    scalar(f.document, &g.title, parseText),
		"workload": scalar(f.document, &g.workload, parseText),
		"protocol": scalar(f.document, &p.Protocol, parseProtocol),
		"sizes":    scalars(f.document, &g.sizes, parseSize),
		"duration": scalar(f.document, &p.Duration, parseDuration),
		"warmup":   scalar(f.document, &p.Warmup, parseDurationOrZero),
		"timeout":  scalar(f.document, &g.timeout, parseDuration),
		"options":  f.options(p),
	})
	f.groups = append(f.groups, g)
}

func (f *file) options(p *workload.Params) key {
	return func(path string, n ast.Node) {
		f.mapping(path, n, map[string]key{
			"nodelay": scalar(f.document, &p.NoDelay, parseBool),
		})
	}
}

func parseProtocol(text string) (workload.Protocol, error) {
	name, err := parseText(text)
	return workload.Protocol(name), err
}
