package share

import (
	"path/filepath"
	"strings"
	"testing"
)

// A text that is read as an ID is written as the same text, and its names stay within a
// directory. So does the title of a memory file.
func FuzzParse(f *testing.F) {
	id := ID{Kind: Volume, Pod: "web.1", Name: "data"}
	region := Region{Tenant: "default", ID: ID{Kind: Memory, Pod: "web", Name: "shm"}}
	f.Add(id.String(), region.title())
	f.Add("memory.a.b", "7f00-7f01 rw-s 0 00:01 1043 /memfd:"+region.title()+" (deleted)\n")
	f.Add("volume..pod", regionPrefix+";;;")
	f.Fuzz(func(t *testing.T, text, title string) {
		if i, ok := ParseID(text); ok {
			path := filepath.Join("/volumes", i.Pod, i.Name)
			if i.String() != text || strings.Count(path, "/") != 3 || !filepath.IsLocal(filepath.Join(i.Pod, i.Name)) {
				t.Errorf("%q is read as %+v", text, i)
			}
		}
		if r, ok := parseTitle(title); ok && r.title() != title {
			t.Errorf("%q is read as %+v", title, r)
		}
		for _, found := range mappedRegions(title) {
			if !strings.HasPrefix(found, regionPrefix) {
				t.Errorf("%q has the region %q", title, found)
			}
		}
	})
}
