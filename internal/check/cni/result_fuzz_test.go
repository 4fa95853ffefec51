package cni

import "testing"

// No result of a plugin under test causes a panic of the checker.
func FuzzShape(f *testing.F) {
	f.Add("1.1.0", []byte(`{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","sandbox":"/x"}],"ips":[{"address":"10.0.0.2/24","interface":0}]}`))
	f.Add("0.4.0", []byte(`{"cniVersion":"0.4.0","interfaces":[{}],"ips":[{"version":"4","address":"10.0.0.2/24","interface":-1}]}`))
	f.Fuzz(func(_ *testing.T, version string, text []byte) {
		_ = shape(version, text)
		_, _ = ParsePeer(string(text))
	})
}
