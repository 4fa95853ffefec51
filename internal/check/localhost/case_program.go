package localhost

import (
	"fmt"
	"net"
	"strings"

	"unnest/internal/check/localhost/agent"
)

// programCases run real programs: a server in one fraction, clients in all. What is
// not in a fraction's PATH is not there; gRPC and the proxy are in the agent.
var programCases = []Case{
	{"programs", "grpc-calls-and-streams-work", false, both, grpcWorks},
	{"programs", "sidecar-proxy-serves-other-fractions", false, both, sidecar},
	{"programs", "curl-fetches-from-nginx", false, both, nginx},
	{"programs", "curl-fetches-from-python", false, both, python},
	{"programs", "memcached-stores-and-tells", false, both, memcached},
	{"programs", "redis-stores-and-tells", false, both, redis},
	{"programs", "postgres-stores-and-tells", false, both, postgres},
}

func grpcWorks(t *trial) error {
	s, err := t.tcpServer(t.fraction(1), agent.GRPC)
	if err != nil {
		return err
	}
	return each(t.fractions, func(f *fraction) error {
		const messages = 100
		called, err := do(t, f, agent.CallGRPC{Address: s.address, Large: 1 << 20, Stream: messages})
		if err == nil && (called.Calls != 3 || called.Messages != messages) {
			err = fmt.Errorf("%s: %d of 3 calls and %d of %d messages were answered", f, called.Calls, called.Messages, messages)
		}
		return err
	})
}

// sidecar has a server in one fraction, its proxy in the next, and clients in all.
func sidecar(t *trial) error {
	const size = 1 << 20
	app, err := t.tcpServer(t.fraction(1), agent.HTTP)
	if err != nil {
		return err
	}
	port, err := t.ports.take()
	if err != nil {
		return err
	}
	proxy, err := t.serve(t.fraction(2), t.loopback, agent.Serve{Network: t.tcp, Address: at(t.loopback, port), Kind: agent.Proxy, Upstream: app.address})
	if err != nil {
		return err
	}
	return each(t.fractions, func(f *fraction) error {
		url := fmt.Sprintf("http://%s/bytes?size=%d", proxy.address, size)
		page, err := do(t, f, agent.Fetch{URL: url})
		if err == nil && (page.Status != 200 || page.Size != size || page.Sum != agent.StreamSum(size)) {
			err = fmt.Errorf("%s: %s: status %d, %d bytes with sum %x", f, url, page.Status, page.Size, page.Sum)
		}
		return err
	})
}

// needs returns a notThere unless all programs are in the fractions' PATH.
func (t *trial) needs(fractions []*fraction, programs ...string) error {
	for _, f := range fractions {
		missing, err := do(t, f, agent.Look{Programs: programs})
		if err != nil {
			return err
		}
		if len(missing) > 0 {
			return notThere(fmt.Sprintf("%s in %s", strings.Join(missing, ", "), f))
		}
	}
	return nil
}

// runServer starts a program that is to listen on a new port of loopback, as order
// says for host and port.
func (t *trial) runServer(f *fraction, order func(host, port string) agent.Run) (host, port string, err error) {
	number, err := t.ports.take()
	if err != nil {
		return "", "", err
	}
	host, port, err = net.SplitHostPort(at(t.loopback, number))
	if err != nil {
		return "", "", err
	}
	o := order(host, port)
	o.Ready = at(t.loopback, number)
	ran, err := do(t, f, o)
	if err != nil {
		return "", "", err
	}
	t.keep(&running{fraction: f, handle: ran.Handle})
	return host, port, nil
}

// prints returns an error unless a program prints what is wanted, blanks at both ends
// aside.
func (t *trial) prints(f *fraction, want string, args ...string) error {
	ran, err := do(t, f, agent.Run{Args: args})
	if err == nil && strings.TrimSpace(ran.Output) != want {
		err = fmt.Errorf("%s: %s printed %q, want %q", f, args[0], ran.Output, want)
	}
	return err
}

// page is what web servers are to serve.
const page = "the pod's localhost"

// curl fetches the page in every fraction.
func (t *trial) curl(host, port string) error {
	return each(t.fractions, func(f *fraction) error {
		return t.prints(f, page, "curl", "--silent", "--show-error", "--fail", "--globoff", "--noproxy", "*",
			fmt.Sprintf("http://%s/page.txt", net.JoinHostPort(host, port)))
	})
}

// webServer runs a web server that serves its directory, and fetches from it.
func (t *trial) webServer(program string, order func(host, port string) agent.Run) error {
	if err := t.needs(t.fractions[:1], program); err != nil {
		return err
	}
	if err := t.needs(t.fractions, "curl"); err != nil {
		return err
	}
	host, port, err := t.runServer(t.fraction(1), func(host, port string) agent.Run {
		o := order(host, port)
		if o.Files == nil {
			o.Files = map[string]string{}
		}
		o.Files["page.txt"] = page
		return o
	})
	if err != nil {
		return err
	}
	return t.curl(host, port)
}

// nginxConfig needs nothing outside of its directory, and is one process.
const nginxConfig = `daemon off;
master_process off;
pid {dir}/pid;
error_log stderr;
events {}
http {
  access_log off;
  client_body_temp_path {dir}/body;
  proxy_temp_path {dir}/proxy;
  fastcgi_temp_path {dir}/fastcgi;
  uwsgi_temp_path {dir}/uwsgi;
  scgi_temp_path {dir}/scgi;
  server { listen %s; root {dir}; }
}
`

func nginx(t *trial) error {
	return t.webServer("nginx", func(host, port string) agent.Run {
		return agent.Run{
			Args:  []string{"nginx", "-e", "stderr", "-p", "{dir}", "-c", "{dir}/nginx.conf"},
			Files: map[string]string{"nginx.conf": fmt.Sprintf(nginxConfig, net.JoinHostPort(host, port))},
		}
	})
}

func python(t *trial) error {
	return t.webServer("python3", func(host, port string) agent.Run {
		return agent.Run{Args: []string{"python3", "-m", "http.server", port, "--bind", host, "--directory", "{dir}"}}
	})
}

// memcached speaks its protocol by bash, so that it needs no client.
func memcached(t *trial) error {
	if err := t.needs(t.fractions[:1], "memcached"); err != nil {
		return err
	}
	if err := t.needs(t.fractions, "bash"); err != nil {
		return err
	}
	host, port, err := t.runServer(t.fraction(1), func(host, port string) agent.Run {
		return agent.Run{Args: []string{"memcached", "-l", host, "-p", port, "-U", "0"}, Unprivileged: true}
	})
	if err != nil {
		return err
	}
	const script = `exec 3<>"/dev/tcp/$0/$1"; printf 'set k%s 0 0 5\r\nhello\r\nget k%s\r\nquit\r\n' "$2" "$2" >&3; tr -d '\r' <&3`
	return each(t.fractions, func(f *fraction) error {
		key := fmt.Sprint(f.number)
		return t.prints(f, "STORED\nVALUE k"+key+" 0 5\nhello\nEND", "bash", "-c", script, host, port, key)
	})
}

func redis(t *trial) error {
	if err := t.needs(t.fractions[:1], "redis-server"); err != nil {
		return err
	}
	if err := t.needs(t.fractions, "redis-cli"); err != nil {
		return err
	}
	host, port, err := t.runServer(t.fraction(1), func(host, port string) agent.Run {
		return agent.Run{Args: []string{"redis-server", "--bind", host, "--port", port, "--dir", "{dir}", "--save", "", "--protected-mode", "no"}, Unprivileged: true}
	})
	if err != nil {
		return err
	}
	return each(t.fractions, func(f *fraction) error {
		key := fmt.Sprint("k", f.number)
		if err := t.prints(f, "OK", "redis-cli", "-h", host, "-p", port, "set", key, "hello"); err != nil {
			return err
		}
		return t.prints(f, "hello", "redis-cli", "-h", host, "-p", port, "get", key)
	})
}

// postgres makes a database first, as a user other than root.
func postgres(t *trial) error {
	if err := t.needs(t.fractions[:1], "sh", "initdb", "postgres"); err != nil {
		return err
	}
	if err := t.needs(t.fractions, "psql"); err != nil {
		return err
	}
	const script = `initdb --pgdata="$0/data" --username=unnest --auth=trust --no-sync >&2 &&
exec postgres -D "$0/data" -h "$1" -p "$2" -c unix_socket_directories= -c fsync=off`
	host, port, err := t.runServer(t.fraction(1), func(host, port string) agent.Run {
		return agent.Run{Args: []string{"sh", "-c", script, "{dir}", host, port}, Unprivileged: true}
	})
	if err != nil {
		return err
	}
	query := func(f *fraction, want, sql string) error {
		return t.prints(f, want, "psql", "--no-psqlrc", "--quiet", "--tuples-only", "--no-align",
			"--dbname", fmt.Sprintf("host=%s port=%s user=unnest dbname=postgres sslmode=prefer", host, port), "--command", sql)
	}
	// It listens some time before it answers.
	if err := t.eventually(func() error { return query(t.fraction(1), "", "CREATE TABLE IF NOT EXISTS said (who int, what text)") }); err != nil {
		return err
	}
	return each(t.fractions, func(f *fraction) error {
		if err := query(f, "", fmt.Sprintf("INSERT INTO said VALUES (%d, repeat('hello', 10000))", f.number)); err != nil {
			return err
		}
		return query(f, strings.Repeat("hello", 10000), fmt.Sprintf("SELECT what FROM said WHERE who = %d", f.number))
	})
}
