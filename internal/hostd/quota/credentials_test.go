package quota

import (
	"strings"
	"testing"
)

func TestCredentials(t *testing.T) {
	const head = "tenants: [{name: a, bridge: br0}]\nguests:\n  - {name: g, tenant: a, index: 1, "
	for text, want := range map[string]string{
		"qmp: /q, credentials: vmm}":                 "",
		"qmp: /q}":                                   "",
		"qmp: /q, credentials: file}":                "want vmm",
		"libvirt: {domain: d}, credentials: vmm}":    "",
		"libvirt: {domain: d, socket: /s}, pool: 1}": "",
	} {
		p, err := Parse("hostd.yaml", []byte(head+text))
		switch {
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: got %v, want %q", text, err, want)
		case want == "" && (err != nil || (p.Guests[0].Credentials == CredentialsVMM) != strings.Contains(text, "vmm")):
			t.Errorf("%s: got %+v, %v", text, p.Guests, err)
		}
	}
}
