// Package guestimage makes the guest images and root directories that the configurations of an experiment
// need, with our programs, the tools and servers of the cases, and their files.
package guestimage

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/image"
)

// Images are the guest images and root directories that the configurations need.
type Images struct {
	spec     *experiment.Spec
	binaries string            // directory of our binaries, see Options
	note     func(text string) // records what casts doubt on the figures
	Digest   string            // of the last image that was made
	Builder  image.Builder
	Recipe   image.Recipe
	Inner    image.Image // of the guests that cases run in
	Outer    image.Image // of the guests that run other guests
	Xen      image.Image // of the Xen host that a run boots, and of the domains of all Xen hosts
	Foreign  map[stack.Arch]image.Image
	Others   map[other]image.Image // of the guests with another Debian than Inner, or another container engine
	Archive  *image.Archive        // of containers on the user's hosts
	files    map[string]string     // of the cases; images without our binaries have these only
	derived  map[string]string     // made of files, by programs of this machine's architecture
}

// New says what the configurations of spec need. build makes it.
func New(spec *experiment.Spec, binaries string) Images {
	i := Images{spec: spec, binaries: binaries, Recipe: image.DefaultRecipe(), Foreign: map[stack.Arch]image.Image{}, Others: map[other]image.Image{}, files: map[string]string{}, derived: map[string]string{}}
	if all := Packages(spec); len(all) > 0 || slices.ContainsFunc(spec.Cases, func(c experiment.Case) bool { return c.Local != nil }) {
		i.Recipe = image.SuiteRecipe(all)
	}
	i.Recipe = i.Recipe.With(serverPackages(spec)...)
	if emulates(spec) {
		i.Recipe = i.Recipe.Emulated()
	}
	if programs := contained(spec); len(programs) > 0 {
		i.Recipe = i.Recipe.Containing(programs...)
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

// Applications are the programs of the servers that the cases load.
func Applications(spec *experiment.Spec) (programs []string) {
	for _, c := range spec.Cases {
		if c.Local == nil && c.Probe == "" {
			programs = append(programs, c.Workload().Programs()...)
		}
	}
	slices.Sort(programs)
	return slices.Compact(programs)
}

// contained are the programs in the containers of guests: the servers of applications and,
// where clients run in a pod, the load generator. It is also the server of loads between two peers.
func contained(spec *experiment.Spec) []string {
	programs := Applications(spec)
	if slices.ContainsFunc(spec.Cases, func(c experiment.Case) bool { return c.Local == nil && c.Probe == "" && workload.IsPeer(c.Workload()) }) {
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

// Build returns the guest image with our binaries in it. binaries is the
// directory that `make build` fills; step is called with each step of the build.
func Build(ctx context.Context, binaries string, step func(string)) (image.Image, error) {
	builder := imageBuilder(binaries, step)
	return builder.Build(ctx, image.DefaultRecipe())
}

// CNITimer is the program in the guests that times CNI plugins.
const CNITimer = "/usr/lib/unnest/cni-timer"

// nerdctl is the command line of containerd in the guests.
const nerdctl = "/usr/local/bin/nerdctl"

// imageBuilder makes images with our binaries in them.
func imageBuilder(binaries string, step func(string)) image.Builder {
	return image.Builder{
		Cache: image.CacheDir(),
		Files: map[string]string{
			nerdctl:                 filepath.Join(binaries, "nerdctl"),
			"/usr/lib/cni/brfusion": filepath.Join(binaries, "unnest-cni"),
			"/usr/lib/cni/hostlo":   filepath.Join(binaries, "unnest-cni"),
			CNITimer:                filepath.Join(binaries, "cni-timer"),
		},
		Progress: step,
	}
}

// Build makes the images of all configurations. It calls step with each step, and note with what casts
// doubt on the figures.
func (i *Images) Build(ctx context.Context, step, note func(string)) (err error) {
	i.Builder, i.note = imageBuilder(i.binaries, step), note
	if err := i.addFiles(ctx); err != nil {
		return err
	}
	for _, c := range i.spec.Configurations {
		for _, one := range c.Singles() {
			if err := i.buildFor(ctx, one); err != nil {
				return err
			}
		}
	}
	return nil
}

func (i *Images) buildFor(ctx context.Context, c stack.Configuration) (err error) {
	_, contained := c.Stack.Engine()
	switch {
	case c.Stack.Remote() && contained && i.Archive == nil:
		builder := image.Builder{Cache: i.Builder.Cache, Progress: i.Builder.Progress, Files: maps.Clone(i.files)}
		maps.Copy(builder.Files, i.derived)
		i.Archive, err = builder.Archive(ctx, i.Recipe)
	case c.Stack.Remote():
	case c.Stack.Xen():
		i.Xen, err = i.Builder.Build(ctx, i.Recipe.Xen())
		i.Digest = i.Xen.Digest
	case c.Architecture() != stack.X8664:
		err = i.buildForeign(ctx, c.Architecture())
	case c.Level() == 0:
		_, err = i.Builder.Root(ctx, i.Recipe)
	case i.otherOf(c) != other{}:
		err = i.buildOther(ctx, i.otherOf(c))
	default:
		i.Inner, err = i.Builder.Build(ctx, i.Recipe)
		i.Digest = i.Inner.Digest
	}
	if err == nil && c.Level() > 1 {
		i.Outer, err = i.Builder.Build(ctx, image.HypervisorRecipe())
	}
	return err
}

// Of returns the image of the guest that the cases of a configuration run in.
func (i *Images) Of(c stack.Configuration) image.Image {
	if o := i.otherOf(c); o != (other{}) {
		return i.Others[o]
	}
	return i.Inner
}

// other is in what a guest differs from that of the recipe.
type other struct {
	release stack.Release // empty: that of the recipe
	engine  stack.Layer   // docker, podman; empty: containerd
}

// otherOf returns the zero value for the guest of the recipe.
func (i *Images) otherOf(c stack.Configuration) (o other) {
	if string(c.Release) != i.Recipe.Suite {
		o.release = c.Release
	}
	if engine, _ := c.Stack.Engine(); engine == stack.Docker || engine == stack.Podman {
		o.engine = engine
	}
	return o
}

// enginePackages are the Debian packages of a container engine, other than containerd. Docker needs AppArmor's parser. Those of
// Debian 13 have the command docker, and what connects containers of Podman, in packages of their own.
func enginePackages(o other) []string {
	switch {
	case o.engine == stack.Docker && o.release == stack.Trixie:
		return []string{"docker.io", "docker-cli", "apparmor"}
	case o.engine == stack.Docker:
		return []string{"docker.io", "apparmor"}
	case o.engine == stack.Podman && o.release == stack.Trixie:
		return []string{"podman", "netavark", "nftables"}
	case o.engine == stack.Podman:
		return []string{"podman"}
	}
	return nil
}

// buildOther makes an image with another release of Debian or another engine, which needs no nerdctl.
func (i *Images) buildOther(ctx context.Context, o other) error {
	recipe, err := i.Recipe.With(enginePackages(o)...).Of(cmp.Or(string(o.release), i.Recipe.Suite))
	if err != nil {
		return err
	}
	builder := i.Builder
	if o.engine != "" {
		builder.Files = maps.Clone(builder.Files)
		delete(builder.Files, nerdctl)
	}
	if i.Others[o], err = builder.Build(ctx, recipe); err != nil {
		return fmt.Errorf("guest of %s: %w", strings.TrimSpace(string(o.release)+" "+string(o.engine)), err)
	}
	i.Digest = cmp.Or(i.Digest, i.Others[o].Digest)
	return nil
}

// buildForeign makes the image of another architecture. It has the tools and the servers, but no
// container engine of ours, and no files that programs of this machine have made.
func (i *Images) buildForeign(ctx context.Context, a stack.Arch) error {
	if i.Foreign[a] != (image.Image{}) {
		return nil
	}
	arch, err := image.ParseArch(string(a))
	if err != nil {
		return err
	}
	recipe, err := image.ArchRecipe(arch)
	if err != nil {
		return err
	}
	builder := image.Builder{Cache: i.Builder.Cache, Progress: i.Builder.Progress, Files: i.files}
	i.Foreign[a], err = builder.Build(ctx, recipe.With(append(Packages(i.spec), serverPackages(i.spec)...)...))
	return err
}

// Packages are the Debian packages of the cases' tools.
func Packages(spec *experiment.Spec) (all []string) {
	for _, c := range spec.Cases {
		if c.Local != nil {
			all = append(all, strings.Fields(c.Local.Package)...)
		} else if c.Probe == "" {
			all = append(all, workload.ExtraOf(c.Workload()).Packages...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// addFiles downloads the files that no Debian package has.
func (i *Images) addFiles(ctx context.Context) error {
	for _, c := range i.spec.Cases {
		for _, f := range filesOf(c) {
			path, err := i.find(ctx, f)
			if err != nil {
				return fmt.Errorf("case %s: %w", c.Name, err)
			}
			i.files[f.Path] = path
		}
	}
	i.addDerived(ctx)
	if slices.Contains(contained(i.spec), workload.Generator) {
		i.files[workload.Generator] = filepath.Join(i.binaries, filepath.Base(workload.Generator))
	}
	maps.Copy(i.Builder.Files, i.files)
	maps.Copy(i.Builder.Files, i.derived)
	return nil
}

// BinariesDir is the directory of this executable, where `make build` puts the
// other binaries.
func BinariesDir() (string, error) {
	path, err := os.Executable()
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return "", fmt.Errorf("find this executable: %w", err)
	}
	return filepath.Dir(path), nil
}
