package doctor

import "context"

// engine is a container engine of the host.
type engine struct {
	tool
	socket string // of its daemon; empty: it has none
	bring  string // how to install it
	start  string // how to start its daemon
}

// The engines on which containers of the host itself can be measured.
var hostEngines = []engine{
	{tool{name: "docker", program: "docker"}, "/var/run/docker.sock", "apt-get install docker.io", "systemctl start docker (without systemd: dockerd &)"},
	{tool{name: "containerd", program: "containerd"}, "/run/containerd/containerd.sock", "apt-get install containerd", "systemctl start containerd (without systemd: containerd &)"},
	{tool{name: "podman", program: "podman"}, "", "apt-get install podman", ""},
	{tool{name: "nerdctl", program: "nerdctl"}, "/run/containerd/containerd.sock", "put nerdctl of https://github.com/containerd/nerdctl/releases into PATH", "systemctl start containerd (without systemd: containerd &)"},
}

// engines checks which container engines are there and running.
func engines(ctx context.Context, p Probes) []Check {
	var checks []Check
	for _, e := range hostEngines {
		checks = append(checks, e.check(ctx, p))
	}
	return checks
}

func (e engine) check(ctx context.Context, p Probes) Check {
	found, err := e.find(ctx, p)
	c := works(e.name, found, err, e.bring)
	if err != nil || e.socket == "" {
		return c
	}
	if err := p.Dial(e.socket); err != nil {
		c.State, c.Remedy = Limited, e.start
		c.Found += ", not running: " + err.Error()
		return c
	}
	c.Found += ", running"
	return c
}
