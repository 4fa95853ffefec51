package daemon

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/vmm"
)

// withFakeVMMs is set for a daemon whose guests have VMMs in its memory, which take no time.
const withFakeVMMs = "UNNEST_TEST_FAKE_VMMS"

const fakeSlots = 32

func serveFakes(ctx context.Context, c Config) error {
	d, err := newDaemon(c)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	guests := map[string]*fakeVMM{}
	d.host.Dial = func(_ context.Context, r record.Guest) (vmm.VMM, error) {
		mu.Lock()
		defer mu.Unlock()
		if guests[r.Name] == nil {
			guests[r.Name] = newFakeVMM(fakeSlots)
		}
		return guests[r.Name], nil
	}
	return d.run(ctx)
}

const atOnceConfig = `listen: 127.0.0.1:7443
tenants:
  - {name: default, bridge: br0, ranges: [{subnet: 10.9.0.0/16}], cooldown: 0s, networkPolicy: optional, limits: {nics: 28}}
  - {name: other, bridge: br1, ranges: [{subnet: 10.8.0.0/16}], cooldown: 0s, networkPolicy: optional, limits: {attachesPerSecond: 0}}
`

// fake returns a guest of a tenant with a fake VMM.
func (l *lab) fake(index int, tenant string) *machine {
	l.t.Helper()
	name := fmt.Sprint("node", index)
	config, credentials := issue(l.t, l.dir, name)
	m := &machine{lab: l, config: config, record: record.Guest{
		Name: name, Tenant: tenant, Index: index, QMP: filepath.Join(filepath.Dir(record.Path(l.dir, name)), "qmp"), CertificateSHA256: credentials.Fingerprint,
	}}
	m.write()
	return m
}

// A hundred pods that start at once on four guests are within what their tenant may do at once: their ADDs do not wait.
func TestPodsAtOnce(t *testing.T) {
	t.Setenv(withFakeVMMs, "1")
	l := newLab(t)
	l.configure(atOnceConfig)
	var all sync.WaitGroup
	var guests []*machine
	for i := range 4 {
		guests = append(guests, l.fake(i+1, "default"))
	}
	l.serve(patience)
	begin := time.Now()
	for i := range 100 {
		all.Go(func() {
			_, err := guests[i%4].client().AttachNIC(t.Context(), &hostdpb.AttachNICRequest{ContainerId: fmt.Sprint("c", i), Interface: "eth0", Allocate: true})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	t.Logf("100 pods have their NICs after %v", time.Since(begin))
}
