package cni

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
)

// failureChecks ask what a plugin does with what cannot be done.
var failureChecks = []check{
	{"add-netns-missing", "ADD", Must, "", func(t *trial) error { return t.refusesNetns(filepath.Join(t.dir, "missing")) }},
	{"add-netns-not-one", "ADD", Must, "", addNetnsNotOne},
	{"add-no-delegate", "Delegated plugin execution procedure", Must, "", addNoDelegate},
	{"add-no-delegate-rollback", "Delegated plugin execution procedure", Should, "", addNoDelegateRollback},
	{"error-broken-json", "Error", Must, "", errorBrokenJSON},
	{"error-unknown-version", "Error", Must, "", errorUnknownVersion},
	{"error-missing-parameter", "Error", Must, "", errorMissingParameter},
	{"error-container-id", "Parameters", Must, "", func(t *trial) error {
		return t.refusesParameter("CNI_CONTAINERID", "../escape", "a/b", "-dash", "with space")
	}},
	{"error-interface-name", "Parameters", Must, "", func(t *trial) error {
		return t.refusesParameter("CNI_IFNAME", "a/b", "..", "longer-than-a-link", "with space", "a:b")
	}},
	{"error-network-name", "Configuration format", Must, "", errorNetworkName},
	{"error-unknown-command", "CNI operations", Must, "", errorUnknownCommand},
	{"error-cni-version", "Error", Should, "", errorCNIVersion},
}

// refused runs a command that has to fail with one of the codes; none: any.
func (t *trial) refused(p parameters, config []byte, codes ...uint) (protocolError, error) {
	a, err := t.raw(t.ctx, p, config)
	if err != nil {
		return protocolError{}, err
	}
	e, err := a.failure()
	if err != nil {
		return e, err
	}
	if len(codes) > 0 && !slices.Contains(codes, *e.Code) {
		return e, fmt.Errorf("the code is %d (%q), want one of %v", *e.Code, e.Msg, codes)
	}
	return e, nil
}

// refusesNetns adds a pod whose CNI_NETNS is wrong. Nothing may be left before
// the DEL that a runtime does in any case.
func (t *trial) refusesNetns(path string) error {
	p, err := t.pod()
	if err != nil {
		return err
	}
	rt := attachment(p, eth0)
	rt.NetNS = path
	config, err := t.config(nil)
	if err != nil {
		return err
	}
	t.touch(p, eth0)
	if _, err := t.refused(t.parameters("ADD", rt), config); err != nil {
		return fmt.Errorf("ADD with CNI_NETNS %s: %w", path, err)
	}
	return t.empty(p)
}

func addNetnsNotOne(t *trial) error {
	path := filepath.Join(t.dir, "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	return t.refusesNetns(path)
}

// withoutDelegate adds a pod while the IPAM plugin is in no directory of CNI_PATH.
func (t *trial) withoutDelegate() (*pod, error) {
	if t.ipam == "" {
		return nil, notApplicable("the network has no IPAM plugin")
	}
	p, err := t.pod()
	if err != nil {
		return nil, err
	}
	config, err := t.config(nil)
	if err != nil {
		return nil, err
	}
	params := t.parameters("ADD", attachment(p, eth0))
	params["CNI_PATH"] = t.dir
	t.touch(p, eth0)
	if _, err := t.refused(params, config); err != nil {
		return nil, fmt.Errorf("ADD with CNI_PATH %s: %w", t.dir, err)
	}
	return p, nil
}

func addNoDelegate(t *trial) error {
	p, err := t.withoutDelegate()
	if err != nil {
		return err
	}
	if err := t.delFrom(p, eth0); err != nil {
		return err
	}
	if err := t.empty(p); err != nil {
		return err
	}
	r, err := t.addTo(p, eth0)
	if err != nil {
		return fmt.Errorf("with the IPAM plugin back: %w", err)
	}
	return t.works(p, eth0, r)
}

func addNoDelegateRollback(t *trial) error {
	p, err := t.withoutDelegate()
	if err != nil {
		return err
	}
	return t.empty(p)
}

func errorBrokenJSON(t *trial) error {
	p, err := t.pod()
	if err != nil {
		return err
	}
	for _, command := range []string{"ADD", "DEL"} {
		for _, text := range []string{"", "{", `{"cniVersion":`, "[]", "\x00"} {
			_, err := t.refused(t.parameters(command, attachment(p, eth0)), []byte(text), types.ErrDecodingFailure, types.ErrInvalidNetworkConfig)
			if err != nil {
				return fmt.Errorf("%s with %q on the standard input: %w", command, text, err)
			}
		}
	}
	return t.empty(p)
}

func errorUnknownVersion(t *trial) error {
	p, err := t.pod()
	if err != nil {
		return err
	}
	for _, command := range []string{"ADD", "DEL"} {
		config, err := t.config(map[string]any{"cniVersion": "9.9.9"})
		if err != nil {
			return err
		}
		if _, err := t.refused(t.parameters(command, attachment(p, eth0)), config, types.ErrIncompatibleCNIVersion); err != nil {
			return fmt.Errorf("%s with cniVersion 9.9.9: %w", command, err)
		}
	}
	return t.empty(p)
}

func errorMissingParameter(t *trial) error {
	required := map[string][]string{
		"ADD": {"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"},
		"DEL": {"CNI_CONTAINERID", "CNI_IFNAME"},
	}
	if !older(t.version, "0.4.0") {
		required["CHECK"] = required["ADD"]
	}
	p, err := t.pod()
	if err != nil {
		return err
	}
	config, err := t.config(nil)
	if err != nil {
		return err
	}
	for _, command := range sortedKeys(required) {
		for _, name := range required[command] {
			params := t.parameters(command, attachment(p, eth0))
			delete(params, name)
			e, err := t.refused(params, config, types.ErrInvalidEnvironmentVariables)
			if err != nil {
				return fmt.Errorf("%s without %s: %w", command, name, err)
			}
			if !strings.Contains(e.Msg+e.Details, name) {
				return fmt.Errorf("%s without %s: the error does not name it: %q", command, name, e.Msg)
			}
		}
	}
	return t.empty(p)
}

func (t *trial) refusesParameter(name string, values ...string) error {
	p, err := t.pod()
	if err != nil {
		return err
	}
	config, err := t.config(nil)
	if err != nil {
		return err
	}
	for _, v := range values {
		params := t.parameters("ADD", attachment(p, eth0))
		params[name] = v
		if _, err := t.refused(params, config, types.ErrInvalidEnvironmentVariables); err != nil {
			return fmt.Errorf("ADD with %s %q: %w", name, v, err)
		}
	}
	return t.empty(p)
}

func errorNetworkName(t *trial) error {
	p, err := t.pod()
	if err != nil {
		return err
	}
	for _, name := range []string{"", "a/b", "-dash"} {
		config, err := t.config(map[string]any{"name": name})
		if err != nil {
			return err
		}
		if _, err := t.refused(t.parameters("ADD", attachment(p, eth0)), config, types.ErrInvalidNetworkConfig); err != nil {
			return fmt.Errorf("ADD to the network %q: %w", name, err)
		}
	}
	return t.empty(p)
}

func errorUnknownCommand(t *trial) error {
	p, err := t.pod()
	if err != nil {
		return err
	}
	config, err := t.config(nil)
	if err != nil {
		return err
	}
	_, err = t.refused(t.parameters("REMEMBER", attachment(p, eth0)), config, types.ErrInvalidEnvironmentVariables)
	if err != nil {
		return fmt.Errorf("CNI_COMMAND REMEMBER: %w", err)
	}
	return t.empty(p)
}

func errorCNIVersion(t *trial) error {
	p, err := t.pod()
	if err != nil {
		return err
	}
	config, err := t.config(nil)
	if err != nil {
		return err
	}
	rt := attachment(p, eth0)
	rt.NetNS = filepath.Join(t.dir, "missing")
	t.touch(p, eth0)
	e, err := t.refused(t.parameters("ADD", rt), config)
	if err != nil {
		return err
	}
	if e.CNIVersion == "" {
		return errors.New("the error object has no cniVersion")
	}
	if e.CNIVersion != t.version {
		return fmt.Errorf("the error object's cniVersion is %s", e.CNIVersion)
	}
	return nil
}
