package hostlo

import (
	"strings"
	"testing"
)

// No GC of a network removes the packet filters of another one, whose name begins as its name.
func TestGuardsOfNetwork(t *testing.T) {
	for _, other := range []string{"shop.prod", "shop-prod", "shop_", "shops"} {
		if strings.HasPrefix(guardOf(other, "c1", "eth0"), guardsOf("shop")) {
			t.Errorf("a GC of shop removes those of %s", other)
		}
	}
}
