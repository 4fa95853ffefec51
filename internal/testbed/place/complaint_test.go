package place

import (
	"strings"
	"testing"
)

// A container engine that cannot pull an image prints its progress and every attempt. The error
// has the image and the cause.
func TestComplaint(t *testing.T) {
	const bar = "docker.io/library/busybox:latest: resolving      |\x1b[32m\x1b[0m--------------------------------------| \nelapsed: 0.1 s                    total:   0.0 B (0.0 B/s)                                         \n\x1b[1A\x1b[2K\r"
	const attempt = `time="2026-11-23T02:00:00Z" level=info msg="trying next host" error="failed to do request: Head \"https://registry-1.docker.io/v2/library/busybox/manifests/latest\": dial tcp: lookup registry-1.docker.io: Temporary failure in name resolution" host=registry-1.docker.io` + "\n"
	for _, tt := range []struct{ name, stderr, want string }{
		{
			"no registry", bar + bar + attempt + bar + `time="2026-11-23T02:00:01Z" level=fatal msg="failed to resolve reference \"docker.io/library/busybox:latest\": failed to do request: dial tcp: no route"` + "\n",
			"nerdctl on guest node1: exit code 1: pull image docker.io/library/busybox:latest: failed to do request: dial tcp: no route",
		},
		{
			"printed by nerdctl 1.7.7", `time="2026-11-23T03:14:48Z" level=info msg="trying next host" error="failed to do request: Head \"https://registry-1.docker.io/v2/library/alpine/manifests/latest\": dial tcp: lookup registry-1.docker.io on 10.255.255.53:53: dial udp 10.255.255.53:53: connect: network is unreachable" host=registry-1.docker.io
time="2026-11-23T03:14:48Z" level=fatal msg="failed to resolve reference \"docker.io/library/alpine:latest\": failed to do request: Head \"https://registry-1.docker.io/v2/library/alpine/manifests/latest\": dial tcp: lookup registry-1.docker.io on 10.255.255.53:53: dial udp 10.255.255.53:53: connect: network is unreachable"`,
			`nerdctl on guest node1: exit code 1: pull image docker.io/library/alpine:latest: failed to do request: Head "https://registry-1.docker.io/v2/library/alpine/manifests/latest": dial tcp: lookup registry-1.docker.io on 10.255.255.53:53: dial udp 10.255.255.53:53: connect: network is unreachable`,
		},
		{
			"full disk", bar + `time="2026-11-23T02:00:01Z" level=fatal msg="failed to extract layer: no space left on device"`,
			"nerdctl on guest node1: exit code 1: pull image docker.io/library/busybox:latest: failed to extract layer: no space left on device",
		},
		{"no pull", `time="2026-11-23T02:00:01Z" level=fatal msg="no such container: a"`, "nerdctl on guest node1: exit code 1: no such container: a"},
		{"a tool in a container", "mkdir: no space\n" + `time="2026-11-23T02:00:01Z" level=fatal msg="exec failed with exit code 1"`, "nerdctl on guest node1: exit code 1: mkdir: no space"},
		{"another program", "a\n\nb\nc: 5 | 6 | 7\nd\n", "nerdctl on guest node1: exit code 1: b | c: 5 | 6 | 7 | d"},
		{"nothing", "\n", "nerdctl on guest node1: exit code 1"},
	} {
		err := &ExitError{Place: "guest node1", Args: []string{"nerdctl"}, Code: 1, Stderr: strings.TrimSpace(tt.stderr)}
		if got := err.Error(); got != tt.want {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.name, got, tt.want)
		}
	}
}
