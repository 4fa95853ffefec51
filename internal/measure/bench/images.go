package bench

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"unnest/internal/measure/experiment"
	"unnest/internal/measure/stack"
	"unnest/internal/measure/workload"
	"unnest/internal/testbed/guest"
)

// images are the guest images and root directories that the configurations need.
type images struct {
	bench   *Bench
	builder guest.Builder
	recipe  guest.Recipe
	inner   guest.Image // of the guests that cases run in
	outer   guest.Image // of the guests that run other guests
	xen     guest.Image // of the Xen host that a run boots, and of the domains of all Xen hosts
	foreign map[stack.Arch]guest.Image
	archive *guest.Archive    // of containers on the user's hosts
	files   map[string]string // of the cases; images without our binaries have these only
	derived map[string]string // made of files, by programs of this machine's architecture
}

func newImages(b *Bench) images {
	i := images{bench: b, recipe: guest.DefaultRecipe(), foreign: map[stack.Arch]guest.Image{}, files: map[string]string{}, derived: map[string]string{}}
	if all := packages(b.spec); len(all) > 0 || slices.ContainsFunc(b.spec.Cases, func(c experiment.Case) bool { return c.Local != nil }) {
		i.recipe = guest.SuiteRecipe(all)
	}
	i.recipe = i.recipe.With(serverPackages(b.spec)...)
	if emulates(b.spec) {
		i.recipe = i.recipe.Emulated()
	}
	if programs := contained(b.spec); len(programs) > 0 {
		i.recipe = i.recipe.Containing(programs...)
	}
	return i
}

// packageOfServer are the Debian packages of servers by their workload. The recipe of this machine's architecture has some.
var packageOfServer = map[string]string{"apache": "apache2-bin", "memcached": "memcached", "nginx": "nginx"}

// serverPackages are the Debian packages of the servers that the cases load.
func serverPackages(spec *experiment.Spec) (packages []string) {
	for _, c := range spec.Cases {
		if name := packageOfServer[c.Tool]; c.Local == nil && c.Probe == "" && name != "" {
			packages = append(packages, name)
		}
	}
	return packages
}

// emulates reports whether a domain has emulated hardware.
func emulates(spec *experiment.Spec) bool {
	return slices.ContainsFunc(spec.Configurations, func(c stack.Configuration) bool {
		return slices.Contains(c.Stack, stack.XenHVM) || slices.ContainsFunc(c.Domains, func(d stack.Domain) bool { return d.Type.Emulated() })
	})
}

// applications are the programs of the servers that the cases load.
func applications(spec *experiment.Spec) (programs []string) {
	for _, c := range spec.Cases {
		if c.Local == nil && c.Probe == "" {
			programs = append(programs, lookup(c).Programs()...)
		}
	}
	slices.Sort(programs)
	return slices.Compact(programs)
}

// contained are the programs in the containers of guests: the servers of applications and,
// where clients run in a pod, the load generator. It is also the server of loads between two peers.
func contained(spec *experiment.Spec) []string {
	programs := applications(spec)
	if slices.ContainsFunc(spec.Cases, func(c experiment.Case) bool { return c.Local == nil && c.Probe == "" && workload.IsPeer(lookup(c)) }) {
		return append(programs, workload.Generator)
	}
	has := func(f func(stack.Configuration) bool) bool {
		return len(programs) > 0 && slices.ContainsFunc(spec.Configurations, func(c stack.Configuration) bool {
			return slices.ContainsFunc(c.Singles(), f)
		})
	}
	switch {
	case has(func(c stack.Configuration) bool { return c.Drive == stack.Pod }):
		return append(programs, workload.Generator)
	case has(func(c stack.Configuration) bool {
		_, engine := c.Stack.Engine()
		return engine && (c.Level() > 0 || c.Stack.Remote())
	}):
		return programs
	}
	return nil
}

// BuildImage returns the guest image with our binaries in it. binaries is the
// directory that `make build` fills; step is called with each step of the build.
func BuildImage(ctx context.Context, binaries string, step func(string)) (guest.Image, error) {
	builder := imageBuilder(binaries, step)
	return builder.Build(ctx, guest.DefaultRecipe())
}

// imageBuilder makes images with our binaries in them.
func imageBuilder(binaries string, step func(string)) guest.Builder {
	return guest.Builder{
		Cache: guest.CacheDir(),
		Files: map[string]string{
			"/usr/local/bin/nerdctl": filepath.Join(binaries, "nerdctl"),
			"/usr/lib/cni/brfusion":  filepath.Join(binaries, "unnest-cni"),
			"/usr/lib/cni/hostlo":    filepath.Join(binaries, "unnest-cni"),
			cniTimer:                 filepath.Join(binaries, "cni-timer"),
		},
		Progress: step,
	}
}

// build makes the images of all configurations.
func (i *images) build(ctx context.Context) (err error) {
	i.builder = imageBuilder(i.bench.options.Binaries, i.bench.options.Progress.Phase)
	if err := i.addFiles(ctx); err != nil {
		return err
	}
	for _, c := range i.bench.spec.Configurations {
		for _, one := range c.Singles() {
			if err := i.buildFor(ctx, one); err != nil {
				return err
			}
		}
	}
	return nil
}

// buildFor makes the images of a configuration.
func (i *images) buildFor(ctx context.Context, c stack.Configuration) (err error) {
	_, contained := c.Stack.Engine()
	switch {
	case c.Stack.Remote() && contained && i.archive == nil:
		builder := guest.Builder{Cache: i.builder.Cache, Progress: i.builder.Progress, Files: maps.Clone(i.files)}
		maps.Copy(builder.Files, i.derived)
		i.archive, err = builder.Archive(ctx, i.recipe)
	case c.Stack.Remote():
	case c.Stack.Xen():
		i.xen, err = i.builder.Build(ctx, i.recipe.Xen())
		i.bench.facts.Image = i.xen.Digest
	case c.Architecture() != stack.X8664:
		err = i.buildForeign(ctx, c.Architecture())
	case c.Level() == 0:
		_, err = i.builder.Root(ctx, i.recipe)
	default:
		i.inner, err = i.builder.Build(ctx, i.recipe)
		i.bench.facts.Image = i.inner.Digest
	}
	if err == nil && c.Level() > 1 {
		i.outer, err = i.builder.Build(ctx, guest.HypervisorRecipe())
	}
	return err
}

// buildForeign makes the image of another architecture. It has the tools and the servers, but no
// container engine of ours, and no files that programs of this machine have made.
func (i *images) buildForeign(ctx context.Context, a stack.Arch) error {
	if i.foreign[a] != (guest.Image{}) {
		return nil
	}
	arch, err := guest.ParseArch(string(a))
	if err != nil {
		return err
	}
	recipe, err := guest.ArchRecipe(arch)
	if err != nil {
		return err
	}
	builder := guest.Builder{Cache: i.builder.Cache, Progress: i.builder.Progress, Files: i.files}
	i.foreign[a], err = builder.Build(ctx, recipe.With(append(packages(i.bench.spec), serverPackages(i.bench.spec)...)...))
	return err
}

// packages are the Debian packages of the cases' tools.
func packages(spec *experiment.Spec) (all []string) {
	for _, c := range spec.Cases {
		if c.Local != nil {
			all = append(all, strings.Fields(c.Local.Package)...)
		} else if c.Probe == "" {
			all = append(all, workload.ExtraOf(lookup(c)).Packages...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// addFiles downloads the files that no Debian package has.
func (i *images) addFiles(ctx context.Context) error {
	for _, c := range i.bench.spec.Cases {
		for _, f := range filesOf(c) {
			path, err := i.find(ctx, f)
			if err != nil {
				return fmt.Errorf("case %s: %w", c.Name, err)
			}
			i.files[f.Path] = path
		}
	}
	i.addDerived(ctx)
	if slices.Contains(contained(i.bench.spec), workload.Generator) {
		i.files[workload.Generator] = filepath.Join(i.bench.options.Binaries, filepath.Base(workload.Generator))
	}
	maps.Copy(i.builder.Files, i.files)
	maps.Copy(i.builder.Files, i.derived)
	return nil
}
