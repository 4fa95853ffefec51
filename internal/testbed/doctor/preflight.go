package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Purpose is what a machine is checked for by Preflight.
type Purpose string

// The purposes.
const (
	ForGuests       Purpose = "run guests"
	ForMeasurements Purpose = "run experiments"
)

// Preflight returns an error unless this machine has what the purpose needs. It names all that is
// missing, with one command that installs the packages among it. It makes nothing.
func Preflight(ctx context.Context, p Probes, purpose Purpose) error {
	checks := []Check{user(p), architecture(p), diskOf(p, p.neededDisk()), qemu(ctx, p)}
	for _, t := range tools {
		if t.required && (purpose == ForMeasurements || !t.measures) {
			checks = append(checks, t.check(ctx, p))
		}
	}
	checks = append(checks, keys(ctx, p)...)
	if p.Root { // else each would say so again
		checks = append(checks, kernel(p)...)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return unready(checks, purpose)
}

// neededDisk is what the cache has to have room for: an image and its packages, or snapshots of
// guests only.
func (p Probes) neededDisk() uint64 {
	if p.HasImage() {
		return wantDisk / 8
	}
	return wantDisk
}

const installCommand = "apt-get install "

// Packages returns the Debian packages that required checks miss, sorted.
func Packages(checks []Check) (names []string) {
	for _, c := range checks {
		if name, ok := strings.CutPrefix(c.Remedy, installCommand); ok && c.Required && c.State == Missing {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// unready words what required checks miss.
func unready(checks []Check, purpose Purpose) error {
	var parts, absent []string
	for _, c := range checks {
		switch {
		case !c.Required || c.State != Missing:
		case strings.HasPrefix(c.Remedy, installCommand):
			absent = append(absent, c.Found)
		default:
			parts = append(parts, c.Name+": "+c.Found+": "+c.Remedy)
		}
	}
	if len(absent) > 0 {
		parts = append(parts, strings.Join(absent, ", ")+": "+installCommand+strings.Join(Packages(checks), " "))
	}
	if len(parts) == 0 {
		return nil
	}
	return fmt.Errorf("this machine cannot %s: %s", purpose, strings.Join(parts, "; "))
}
