package machine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/testbed/place"
)

// fakeDocker writes its arguments to $DIR/calls. The swarm has no network yet. A join fails with the text of $DIR/join, if that has any. The node is active when asked for the second time.
const fakeDocker = `#!/bin/sh
echo "$@" >>"$DIR/calls"
case $1,$2 in
network,inspect) exit 1 ;;
swarm,join-token) echo token ;;
swarm,join) cat "$DIR/join" >&2; [ ! -s "$DIR/join" ] ;;
info,*)
	[ ! -e "$DIR/asked" ] || echo active
	: >"$DIR/asked" ;;
esac
`

// MakeNetworks waits for a machine that joins the swarm slowly, because Docker goes on after its time limit. Another error ends the wait.
func TestDockerOverlay(t *testing.T) {
	const slow = "Error response from daemon: Timeout was reached before node joined. The attempt to join the swarm will continue in the background.\n"
	path := os.Getenv("PATH")
	for name, tt := range map[string]struct{ join, err, made string }{
		"at once": {"", "", "network create --driver overlay --attachable --subnet 10.0.1.0/24 --gateway 10.0.1.1 --ip-range 10.0.1.128/25 docker-overlay"},
		"late":    {slow, "", "network create --driver overlay --attachable --subnet 10.0.1.0/24 --gateway 10.0.1.1 --ip-range 10.0.1.128/25 docker-overlay"},
		"refused": {"Error response from daemon: rpc error: bad token\n", "bad token", ""},
	} {
		dir := t.TempDir()
		for file, text := range map[string]string{"docker": fakeDocker, "join": tt.join} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv("DIR", dir)
		t.Setenv("PATH", dir+":"+path)
		all := List{{Place: place.Local{}, Address: "10.201.0.2"}, {Place: place.Local{}, Address: "10.201.0.3"}}
		err := all.MakeNetworks(t.Context(), stack.Configuration{Stack: stack.Stack{stack.VM, stack.Docker}, Network: stack.DockerOverlay, Drive: stack.Pod}, "10.0.1.1")
		if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%s: got %v, want %q", name, err, tt.err)
		}
		calls, err := os.ReadFile(filepath.Join(dir, "calls"))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"swarm init --advertise-addr 10.201.0.3\n", "swarm join --advertise-addr 10.201.0.2 --token token 10.201.0.3:2377\n"} {
			if !strings.Contains(string(calls), want) {
				t.Errorf("%s: calls\n%swant %s", name, calls, want)
			}
		}
		if made := strings.Contains(string(calls), "network create"); made != (tt.made != "") || made && !strings.Contains(string(calls), tt.made+"\n") {
			t.Errorf("%s: calls\n%swant %q", name, calls, tt.made)
		}
	}
}
