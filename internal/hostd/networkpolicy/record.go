package networkpolicy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"unnest.io/unnest/internal/hostd/statefile"
)

// A record of a tenant says what its pods here may do. It has what the kernel has taken, and
// nothing else: a record that cannot be loaded is moved to a second path, where it stays until
// the client's next commit. While it is there, the next daemon does not know the policies either.

func path(stateDir, tenant string) string {
	return filepath.Join(stateDir, "policies", tenant+".json")
}

// spokenPod is no pod's name. A record has it once a client has said which pods there are.
const spokenPod = ""

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
		if err := p.disk.write(path, recordOf(pods)); err != nil {
			t.unkept = err.Error()
			p.log.Error("make a record of policies: the next daemon will not know them", "tenant", t.name, "error", err)
		}
		return pods
	}
	if err != nil { // of the disk
		p.doubt(t, err)
		return pods
	}
	var kept map[string]keptPod
	if err = json.Unmarshal(content, &kept); err == nil {
		pods, err = podsOf(kept)
	}
	if err != nil {
		p.quarantine(t, fmt.Errorf("read %s: %w", path, err))
		return map[string]podRules{}
	}
	t.spoken = len(kept) > 0
	return pods
}

// quarantine moves the record of a tenant aside, whose policies are not known then.
func (p *Policies) quarantine(t *tenant, cause error) {
	path := path(p.stateDir, t.name)
	if err := p.disk.rename(path, quarantined(path)); err == nil {
		cause = fmt.Errorf("%w; the record is now %s", cause, quarantined(path))
	}
	p.doubt(t, cause)
}

func (p *Policies) doubt(t *tenant, cause error) {
	t.unread = cause.Error()
	p.log.Error("read policies: the pods have no connections until a client has sent them", "tenant", t.name, "error", cause)
}

// keep writes the record of a tenant. If that fails, it says why, and the next daemon finds a record that
// it cannot load, rather than one of policies that are no longer in force; if not even that is possible, keep fails. One record
// is written at a time, because it takes memory.
func (p *Policies) keep(tenant string, pods map[string]podRules) (unkept string, err error) {
	p.writing.Lock()
	defer p.writing.Unlock()
	path := path(p.stateDir, tenant)
	pods = maps.Clone(pods)
	pods[spokenPod] = podRules{}
	if err = p.disk.write(path, recordOf(pods)); err == nil {
		if err := p.disk.remove(quarantined(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err.Error(), nil // the next daemon finds it
		}
		return "", nil
	}
	emptyErr := p.disk.truncate(path, 0)
	if errors.Is(emptyErr, fs.ErrNotExist) { // if it is quarantined, that is the same for the next daemon
		if _, emptyErr = os.Stat(quarantined(path)); emptyErr != nil { // there was no space for the first one; an empty one needs none
			emptyErr = errors.Join(os.WriteFile(path, nil, 0o600), statefile.Truncate(path, 0)) // which syncs it
		}
	}
	if emptyErr != nil {
		return "", errors.Join(err, emptyErr)
	}
	p.log.Error("the policies are in force, but a daemon that starts will close the pods until their client is back: free space on the disk",
		"tenant", tenant, "error", err)
	return err.Error(), nil
}
