package suite

import (
	"fmt"
	"regexp"
	"time"

	"unnest/internal/measure/workload"
)

// apacheBench is the paper's Apache Benchmark: 100 clients at a time fetch a page
// of 4 KiB over the loopback, as in its profile from port 8088. The server runs
// in a directory that it is confined to, for it gives up root's rights, and then
// may not pass the directories that lead here. In there it does not find the
// library by which its threads end, so that is loaded before.
func apacheBench() Case {
	return Case{
		Suite: "disk", Name: "apache", Title: "Requests for a static page", Paper: "Apache Benchmark",
		Package: "apache2-bin apache2-utils", Tools: []string{"apache2", "ab"}, Metrics: oneRate("requests/s"),
		Run: func(p Profile, _ Resources) string {
			return scratch(fmt.Sprintf(apacheScript, pick(p, 3_000, 1_000_000)))
		},
		Parse: readApache,
		Wall:  wall(30*time.Second, 20*time.Minute),
	}
}

// apacheScript starts the server, has ab send its requests, and stops the server.
const apacheScript = `mkdir -m 755 scratch/site
head -c 4096 /dev/zero | tr '\0' x >scratch/site/test.html
cat >scratch/conf <<END
ServerName localhost
ServerRoot "$PWD/scratch"
DefaultRuntimeDir "$PWD/scratch"
Listen 127.0.0.1:8088
PidFile pid
ErrorLog /dev/stderr
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
User www-data
Group www-data
ChrootDir "$PWD/scratch/site"
DocumentRoot /
END
chmod 644 scratch/site/test.html
LD_PRELOAD=libgcc_s.so.1 apache2 -f "$PWD/scratch/conf" -D FOREGROUND >&2 &
server=$!
stop() { while kill $server 2>/dev/null; do sleep 0.05; done; rm -rf scratch; }
trap stop EXIT
until [ -s scratch/pid ]; do kill -0 $server; sleep 0.05; done
ab -q -n %d -c 100 http://127.0.0.1:8088/test.html
`

// apacheFailures finds a response that was not the page.
var apacheFailures = regexp.MustCompile(`(?m)^(?:Failed requests: +[1-9]|Non-2xx responses:).*$`)

// readApache reads the rate of a run whose requests were all answered.
func readApache(output []byte) ([]workload.Value, error) {
	if line := apacheFailures.Find(output); line != nil {
		return nil, fmt.Errorf("read throughput: not every request was answered: %s", workload.Quote(line))
	}
	return number("throughput", `(?m)^Requests per second: +([\d.]+) \[#/sec\] \(mean\)$`)(output)
}
