package experiment

import (
	"time"

	"github.com/goccy/go-yaml/ast"

	"unnest/internal/stack"
	"unnest/internal/workload"
	"unnest/internal/yamldoc"
)

// file is an experiment file as it is written, before its cases are spread
// over their sizes.
type file struct {
	*yamldoc.Document
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
	doc, root, err := yamldoc.Parse(name, data, maxFile)
	if err != nil {
		return nil, err
	}
	f := &file{
		Document: doc,
		timeout:  time.Minute,
		spec: Spec{
			Text:  string(data),
			Guest: Guest{VCPUs: 1, Memory: 1 << 30}, Repetitions: minRepetitions, Warmup: 1, Retries: 2,
		},
	}
	f.decode(root)
	f.check()
	if err := f.Err(); err != nil {
		return nil, err
	}
	return &f.spec, nil
}

// decode fills the file from YAML.
func (f *file) decode(root ast.Node) {
	s := &f.spec
	f.Mapping("", root, map[string]yamldoc.Key{
		"name":           yamldoc.Scalar(f.Document, &s.Name, yamldoc.Name),
		"title":          yamldoc.Scalar(f.Document, &s.Title, yamldoc.Text),
		"description":    yamldoc.Scalar(f.Document, &s.Description, parseAny),
		"suite":          yamldoc.Scalar(f.Document, &s.Suite, yamldoc.Name),
		"baselines":      f.NotEmpty(yamldoc.Scalars(f.Document, &s.Baselines, yamldoc.Text)),
		"guest":          f.guest,
		"configurations": f.NotEmpty(f.List(f.configuration)),
		"cases":          f.NotEmpty(f.List(f.group)),
		"repetitions":    yamldoc.Scalar(f.Document, &s.Repetitions, yamldoc.Count(1, maxRepetitions)),
		"warmup":         yamldoc.Scalar(f.Document, &s.Warmup, yamldoc.Count(0, 100)),
		"retries":        yamldoc.Scalar(f.Document, &s.Retries, yamldoc.Count(0, 100)),
		"timeout":        yamldoc.Scalar(f.Document, &f.timeout, yamldoc.Duration),
		"seed":           yamldoc.Scalar(f.Document, &s.Seed, parseSeed),
	})
}

func (f *file) guest(path string, n ast.Node) {
	f.Mapping(path, n, map[string]yamldoc.Key{
		"vcpus":  yamldoc.Scalar(f.Document, &f.spec.Guest.VCPUs, yamldoc.Count(1, 1024)),
		"memory": yamldoc.Scalar(f.Document, &f.spec.Guest.Memory, parseBytes),
	})
}

func (f *file) configuration(path string, n ast.Node) {
	var c stack.Configuration
	var network, storage string
	f.Mapping(path, n, map[string]yamldoc.Key{
		"name":    yamldoc.Scalar(f.Document, &c.Name, yamldoc.Name),
		"stack":   yamldoc.Scalar(f.Document, &c.Stack, stack.Parse),
		"network": yamldoc.Scalar(f.Document, &network, yamldoc.Text),
		"storage": yamldoc.Scalar(f.Document, &storage, yamldoc.Text),
	})
	if known, ok := stack.Named(c.Name); ok && !f.Has(path+".stack") {
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
	f.Mapping(path, n, map[string]yamldoc.Key{
		"name":     yamldoc.Scalar(f.Document, &g.name, yamldoc.Name),
		"title":    yamldoc.Scalar(f.Document, &g.title, yamldoc.Text),
		"workload": yamldoc.Scalar(f.Document, &g.workload, yamldoc.Text),
		"protocol": yamldoc.Scalar(f.Document, &p.Protocol, parseProtocol),
		"sizes":    f.NotEmpty(yamldoc.Scalars(f.Document, &g.sizes, parseSize)),
		"duration": yamldoc.Scalar(f.Document, &p.Duration, yamldoc.Duration),
		"warmup":   yamldoc.Scalar(f.Document, &p.Warmup, yamldoc.DurationOrZero),
		"timeout":  yamldoc.Scalar(f.Document, &g.timeout, yamldoc.Duration),
		"options":  f.options(p),
	})
	f.groups = append(f.groups, g)
}

func (f *file) options(p *workload.Params) yamldoc.Key {
	return func(path string, n ast.Node) {
		f.Mapping(path, n, map[string]yamldoc.Key{
			"nodelay": yamldoc.Scalar(f.Document, &p.NoDelay, yamldoc.Bool),
		})
	}
}

func parseProtocol(text string) (workload.Protocol, error) {
	name, err := yamldoc.Text(text)
	return workload.Protocol(name), err
}
