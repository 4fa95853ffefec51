package policy

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// ErrNoVolumes says that a tenant has no volumes.
var ErrNoVolumes = errors.New("the tenant has no volumes")

// VolumesIn returns the directory of the tenant's volumes. The error wraps
// ErrNoVolumes.
func (t Tenant) VolumesIn() (string, error) {
	if t.Volumes == "" {
		return "", fmt.Errorf("%w: the configuration gives tenant %s no directory for them, volumes: PATH", ErrNoVolumes, t.Name)
	}
	return t.Volumes, nil
}

// AdmitVolume returns an error, which wraps ErrLimit, when a tenant whose guests have
// so many volumes may not have one more.
func (t Tenant) AdmitVolume(attached int) error {
	if l := t.Limits.Volumes; l > 0 && attached >= l {
		return fmt.Errorf("%w: the guests of tenant %s have %d volumes of at most %d: remove pods", ErrLimit, t.Name, attached, l)
	}
	return nil
}

// AdmitMemory returns an error, which wraps ErrLimit, when a tenant whose pods share
// so many bytes of memory may not have size more.
func (t Tenant) AdmitMemory(shared, size int64) error {
	if l := int64(t.Limits.SharedMemory) << 20; l > 0 && size > l-shared {
		return fmt.Errorf("%w: the pods of tenant %s share %d bytes of memory of at most %d: %d more do not fit", ErrLimit, t.Name, shared, l, size)
	}
	return nil
}

// parseDirectory accepts an absolute path in its shortest form, so that two can be
// compared, without a comma, which programs that are given it take for their own.
func parseDirectory(text string) (string, error) {
	if _, err := parsePath(text); err != nil {
		return "", err
	}
	if path.Clean(text) != text || text == "/" || strings.Contains(text, ",") {
		return "", fmt.Errorf("want the absolute path of a directory, without '.', '..', '//', a comma and a '/' at its end, got %q", text)
	}
	return text, nil
}

// checkVolumes compares the directory of tenant i with those of the tenants before.
func (f *file) checkVolumes(i int) {
	dir := f.policy.Tenants[i].Volumes
	for j, earlier := range f.policy.Tenants[:i] {
		if dir != "" && earlier.Volumes != "" && (within(dir, earlier.Volumes) || within(earlier.Volumes, dir)) {
			f.Fail(tenantPath(i)+".volumes", "%s and %s of %s overlap: each tenant needs its own", dir, earlier.Volumes, tenantPath(j))
		}
	}
}

func within(dir, parent string) bool { return dir == parent || strings.HasPrefix(dir, parent+"/") }
