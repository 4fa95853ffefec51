package libnetwork

import (
	"context"
	"log/slog"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"

	"unnest.io/unnest/internal/cni/hostlo"
)

// Of a container that has ended without Docker's call the driver keeps nothing, unless Docker has joined the endpoint again.
func TestEndedContainerIsForgotten(t *testing.T) {
	del := hostlo.Plugin.Del
	t.Cleanup(func() { hostlo.Plugin.Del = del })
	for _, again := range []bool{false, true} {
		d := &driver{joins: map[string]joining{}, sandboxes: directory(t.TempDir()), log: slog.New(slog.NewTextHandler(t.Output(), nil))}
		goOn, next := make(chan struct{}), joining{done: make(chan struct{})}
		hostlo.Plugin.Del = func(context.Context, *skel.CmdArgs) error {
			<-goOn
			return nil
		}
		d.inBackground(t.Context(), nil, "e1", sandbox{Network: "n1", Path: t.TempDir() + "/gone", Joined: true}, false)
		j := d.joins["e1"]
		if again {
			d.joins["e1"] = next
		}
		close(goOn)
		<-j.done
		if kept, ok := d.joins["e1"]; ok != again || kept.done != next.done && again {
			t.Errorf("joined again %v: kept %v", again, d.joins)
		}
	}
}
