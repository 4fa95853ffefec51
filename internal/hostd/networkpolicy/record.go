package networkpolicy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"unnest/internal/hostapi/iprange"
	"unnest/internal/netdev/isolation"
)

// A record of a tenant says what its pods here may do. It has what the kernel has taken, and
// nothing else: a record that cannot be loaded is moved to a second path, where it stays until
// the client's next commit. While it is there, the next daemon does not know the policies either.

func path(stateDir, tenant string) string {
	return filepath.Join(stateDir, "policies", tenant+".json")
}

func quarantined(path string) string { return path + ".quarantined" }

// load returns what the record of a tenant says. There is a record from now on, so that the
// next daemon tells a tenant without policies from one whose policies are lost.
func (p *Policies) load(t *tenant) map[string]podRules {
	pods, path := map[string]podRules{}, path(p.stateDir, t.name)
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(quarantined(path)); err == nil {
			p.doubt(t, fmt.Errorf("the client has sent nothing since %s was quarantined", path))
			return pods
		}
		if err := p.write(path, pods); err != nil {
			t.unkept = err.Error()
			p.log.Error("make a record of policies: the next daemon will not know them", "tenant", t.name, "error", err)
		}
		return pods
	}
	if err != nil { // of the disk
		p.doubt(t, err)
		return pods
	}
	if err := json.Unmarshal(content, &pods); err != nil {
		p.quarantine(t, fmt.Errorf("read %s: %w", path, err))
		return map[string]podRules{}
	}
	shared := sharedPeers{}
	for _, pod := range pods {
		for _, d := range []*isolation.Direction{pod.Ingress, pod.Egress} {
			if d != nil {
				for i := range d.Allow {
					d.Allow[i].Peers = iprange.Union(d.Allow[i].Peers) // an earlier version kept prefixes
				}
			}
		}
		shared.share(pod)
	}
	return pods
}

// quarantine moves the record of a tenant aside, whose policies are not known then.
func (p *Policies) quarantine(t *tenant, cause error) {
	path := path(p.stateDir, t.name)
	if err := os.Rename(path, quarantined(path)); err == nil {
		cause = fmt.Errorf("%w; the record is now %s", cause, quarantined(path))
	}
	p.doubt(t, cause)
}

func (p *Policies) doubt(t *tenant, cause error) {
	t.unread = cause.Error()
	p.log.Error("read policies: the pods have no connections until a client has sent them", "tenant", t.name, "error", cause)
}

// keep writes the record of a tenant. If that fails, the next daemon finds a record that it cannot
// load, rather than one of policies that are no longer in force; if not even that is possible, keep fails.
func (p *Policies) keep(t *tenant, pods map[string]podRules) error {
	path := path(p.stateDir, t.name)
	err := p.write(path, pods)
	if err == nil {
		t.unkept = ""
		if err := os.Remove(quarantined(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if emptyErr := os.Truncate(path, 0); emptyErr != nil {
		return errors.Join(err, emptyErr)
	}
	if t.unkept == "" {
		p.log.Error("the policies are in force, but a daemon that starts will close the pods until their client is back: free space on the disk",
			"tenant", t.name, "error", err)
	}
	t.unkept = err.Error()
	return nil
}
