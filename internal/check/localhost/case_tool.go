package localhost

import (
	_ "embed"
	"fmt"
	"net"
	"strings"

	"unnest.io/unnest/internal/check"
	"unnest.io/unnest/internal/check/localhost/agent"
)

// programCases run real tools: a server in one fraction, clients in all. A case is skipped
// if a tool is not in the PATH of a fraction. gRPC and the proxy are part of the agent.
var programCases = []testCase{
	{"grpc-calls-and-streams-work", false, both, grpcWorks},
	{"sidecar-proxy-serves-other-fractions", false, both, sidecar},
	{"curl-fetches-from-nginx", false, both, nginx},
	{"curl-fetches-from-python", false, both, python},
	{"memcached-stores-and-tells", false, both, memcached},
	{"redis-stores-and-tells", false, both, redis},
	{"postgres-stores-and-tells", false, both, postgres},
}

func grpcWorks(t *trial) {
	s := t.tcpServer(t.fraction(1), agent.GRPC)
	each(t.fractions, func(f *fraction) {
		const messages = 100
		called := do(t, f, agent.CallGRPC{Address: s.address, Large: 1 << 20, Stream: messages})
		if called.Calls != 3 || called.Messages != messages {
			check.Failf("%s: %d of 3 calls and %d of %d messages were answered", f, called.Calls, called.Messages, messages)
		}
	})
}

// sidecar has a server in one fraction, its proxy in the next, and clients in all.
func sidecar(t *trial) {
	const size = 1 << 20
	app := t.tcpServer(t.fraction(1), agent.HTTP)
	proxy := t.serve(t.fraction(2), t.loopback, agent.Serve{Network: t.tcp, Address: t.newAddress(t.loopback), Kind: agent.Proxy, Upstream: app.address})
	each(t.fractions, func(f *fraction) {
		url := fmt.Sprintf("http://%s/bytes?size=%d", proxy.address, size)
		page := do(t, f, agent.Fetch{URL: url})
		if page.Status != 200 || page.Size != size || page.Sum != agent.StreamSum(size) {
			check.Failf("%s: %s: status %d, %d bytes with checksum %x", f, url, page.Status, page.Size, page.Sum)
		}
	})
}

// needs skips the case unless all tools are in the PATH of the fractions.
func (t *trial) needs(fractions []*fraction, tools ...string) {
	for _, f := range fractions {
		if missing := do(t, f, agent.Look{Programs: tools}); len(missing) > 0 {
			check.Skip(fmt.Sprintf("%s in %s", strings.Join(missing, ", "), f))
		}
	}
}

// endpoint is where a tool listens.
type endpoint struct{ host, port string }

func (e endpoint) String() string { return net.JoinHostPort(e.host, e.port) }

// runServer starts a tool in fraction 1. run returns its command for a new address.
func (t *trial) runServer(run func(endpoint) agent.Run) endpoint {
	e := endpoint{t.loopback, fmt.Sprint(t.ports.take())}
	r := run(e)
	r.Ready = e.String()
	t.keep(&running{fraction: t.fraction(1), handle: do(t, t.fraction(1), r).Handle})
	return e
}

// prints ends the case unless a tool prints want. Blanks at both ends do not count.
func (t *trial) prints(f *fraction, want string, args ...string) {
	if ran := do(t, f, agent.Run{Args: args}); strings.TrimSpace(ran.Output) != want {
		check.Failf("%s: %s printed %q, want %q", f, args[0], ran.Output, want)
	}
}

// page is the content that web servers serve.
const page = "the pod's localhost"

// webServer runs a web server that serves its directory. All fractions fetch the page.
func (t *trial) webServer(tool string, run func(endpoint) agent.Run) {
	t.needs(t.fractions[:1], tool)
	t.needs(t.fractions, "curl")
	server := t.runServer(run)
	each(t.fractions, func(f *fraction) {
		t.prints(f, page, "curl", "--silent", "--show-error", "--fail", "--globoff", "--noproxy", "*",
			fmt.Sprintf("http://%s/page.txt", server))
	})
}

// nginxConfig uses no file outside its directory, and one process.
//
//go:embed nginx.conf
var nginxConfig string

func nginx(t *trial) {
	t.webServer("nginx", func(e endpoint) agent.Run {
		return agent.Run{
			Args:  []string{"nginx", "-e", "stderr", "-p", "{dir}", "-c", "{dir}/nginx.conf"},
			Files: map[string]string{"page.txt": page, "nginx.conf": fmt.Sprintf(nginxConfig, e)},
		}
	})
}

func python(t *trial) {
	t.webServer("python3", func(e endpoint) agent.Run {
		return agent.Run{
			Args:  []string{"python3", "-m", "http.server", e.port, "--bind", e.host, "--directory", "{dir}"},
			Files: map[string]string{"page.txt": page},
		}
	})
}

// memcached speaks the protocol with bash, so that it needs no client tool.
func memcached(t *trial) {
	t.needs(t.fractions[:1], "memcached")
	t.needs(t.fractions, "bash")
	server := t.runServer(func(e endpoint) agent.Run {
		return agent.Run{Args: []string{"memcached", "-l", e.host, "-p", e.port, "-U", "0"}, Unprivileged: true}
	})
	const script = `exec 3<>"/dev/tcp/$0/$1"; printf 'set k%s 0 0 5\r\nhello\r\nget k%s\r\nquit\r\n' "$2" "$2" >&3; tr -d '\r' <&3`
	each(t.fractions, func(f *fraction) {
		key := fmt.Sprint(f.number)
		t.prints(f, "STORED\nVALUE k"+key+" 0 5\nhello\nEND", "bash", "-c", script, server.host, server.port, key)
	})
}

func redis(t *trial) {
	t.needs(t.fractions[:1], "redis-server")
	t.needs(t.fractions, "redis-cli")
	server := t.runServer(func(e endpoint) agent.Run {
		return agent.Run{Args: []string{"redis-server", "--bind", e.host, "--port", e.port, "--dir", "{dir}", "--save", "", "--protected-mode", "no"}, Unprivileged: true}
	})
	each(t.fractions, func(f *fraction) {
		key := fmt.Sprint("k", f.number)
		t.prints(f, "OK", "redis-cli", "-h", server.host, "-p", server.port, "set", key, "hello")
		t.prints(f, "hello", "redis-cli", "-h", server.host, "-p", server.port, "get", key)
	})
}

// postgres creates a database, as a user other than root, and starts its server.
func postgres(t *trial) {
	t.needs(t.fractions[:1], "sh", "initdb", "postgres")
	t.needs(t.fractions, "psql")
	const script = `initdb --pgdata="$0/data" --username=unnest --auth=trust --no-sync >&2 &&
exec postgres -D "$0/data" -h "$1" -p "$2" -c unix_socket_directories= -c fsync=off`
	server := t.runServer(func(e endpoint) agent.Run {
		return agent.Run{Args: []string{"sh", "-c", script, "{dir}", e.host, e.port}, Unprivileged: true}
	})
	query := func(f *fraction, want, sql string) {
		t.prints(f, want, "psql", "--no-psqlrc", "--quiet", "--tuples-only", "--no-align",
			"--dbname", fmt.Sprintf("host=%s port=%s user=unnest dbname=postgres sslmode=prefer", server.host, server.port), "--command", sql)
	}
	// It listens before it answers queries.
	t.eventually(func() { query(t.fraction(1), "", "CREATE TABLE IF NOT EXISTS said (who int, what text)") })
	each(t.fractions, func(f *fraction) {
		query(f, "", fmt.Sprintf("INSERT INTO said VALUES (%d, repeat('hello', 10000))", f.number))
		query(f, strings.Repeat("hello", 10000), fmt.Sprintf("SELECT what FROM said WHERE who = %d", f.number))
	})
}
