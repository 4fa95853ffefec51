package policylimit

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// What is not refused fits; nothing is refused that fits; and a namespace that takes up to an
// nth of the share is never refused.
func TestRefuse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		share := rapid.IntRange(0, 1000).Draw(t, "share")
		sizes, total := map[string]int{}, 0
		for i, size := range rapid.SliceOfN(rapid.IntRange(0, 400), 0, 12).Draw(t, "sizes") {
			sizes[fmt.Sprint(i)] = size
			total += size
		}
		refused := Refuse(sizes, share)
		left := total
		for i, name := range refused {
			if left <= share {
				t.Fatalf("%v of %v with share %d: %v would do", refused, sizes, share, refused[:i])
			}
			left -= sizes[name]
		}
		if left > share {
			t.Fatalf("%v of %v with share %d leaves %d", refused, sizes, share, left)
		}
		for name, size := range sizes {
			if size*len(sizes) <= share && slices.Contains(refused, name) {
				t.Fatalf("%s with %d is refused, of %v with share %d", name, size, sizes, share)
			}
		}
	})
}
