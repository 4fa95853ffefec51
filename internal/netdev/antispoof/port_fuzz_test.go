package antispoof

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// Whatever is in the kernel's sets, after anyone has restored or edited them: reading it
// back succeeds, each interface is one port, and writing these ports is stable.
func FuzzElements(f *testing.F) {
	all := func(p Port) (content []byte) {
		for _, e := range p.elements() {
			key := append(make([]byte, 0, 64), e.key...)
			content = append(append(content, byte(slices.Index(sets, e.set)), byte(len(key))), key...)
		}
		return content
	}
	f.Add(all(Port{"p1", mac1, addrs("10.0.0.1", "fd00::1"), true, 0}))
	f.Add(append(all(Port{"p1", nil, nil, false, 0}), all(Port{"p2", mac2, addrs("fd00::2"), false, 0})...))
	f.Fuzz(func(t *testing.T, content []byte) {
		var found []element
		for len(content) > 2 {
			s := sets[int(content[0])%len(sets)]
			key := make([]byte, s.KeyType.Bytes) // the kernel keeps the size
			n := copy(key, content[2:])
			content = content[2+n:]
			found = append(found, element{s, string(key)})
		}
		read := parsePorts(found)
		var again []element
		seen := map[string]bool{}
		for _, p := range read {
			if seen[p.Interface] || len(p.Interface) > unix.IFNAMSIZ {
				t.Errorf("port %q twice, or too long", p.Interface)
			}
			seen[p.Interface] = true
			again = append(again, p.elements()...)
		}
		if reread := parsePorts(again); len(reread) != len(read) {
			t.Errorf("%d ports are read back as %d", len(read), len(reread))
		}
	})
}
