package workload

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// apache serves documents of several sizes to clients that open a connection for each
// request, as httperf does. It is the server of the study of collocated domains.
type apache struct{ load }

func newApache() apache {
	return apache{load{name: "apache", threads: 1, conns: 100, size: 1024, maxSize: 1 << 20, domains: true}}
}

const (
	apacheProgram = "/usr/sbin/apache2"
	apacheModules = "/usr/lib/apache2/modules"
	apacheWorkers = apacheModules + "/mod_mpm_event.so"
	apacheAccess  = apacheModules + "/mod_authz_core.so" // without it, nothing is allowed
)

// Programs has the modules, which a container needs too.
func (apache) Programs() []string { return []string{apacheProgram, apacheWorkers, apacheAccess} }

// documents are the sizes of the documents of the study, in bytes. A server has them all.
var documents = []int{1 << 10, 4 << 10, 10 << 10, 30 << 10, 50 << 10, 70 << 10, 100 << 10}

// ApacheFile is the path of the document with size bytes. Its content is that of NginxFile.
func ApacheFile(size int) string { return "/" + strconv.Itoa(size) }

// apacheScript writes the server's directory before serverScript.
const apacheScript = `dir=$1 sizes=$2 conf=$3; shift 3
busybox mkdir -p "$dir/html" && busybox echo "$conf" >"$dir/apache.conf" || exit
for size in $sizes; do busybox seq 1 400000 | busybox head -c "$size" >"$dir/html/$size" || exit; done
busybox chmod -R a+rX "$dir"
` + serverScript

// apacheConfiguration has one process with many threads: the server's only process, so that
// ending it ends the server. The number of threads is Debian's maximum of all processes.
const apacheConfiguration = `ServerRoot %[1]s
LoadModule mpm_event_module ` + apacheWorkers + `
LoadModule authz_core_module ` + apacheAccess + `
ServerName localhost
Listen %[2]s
PidFile %[1]s/pid
User nobody
Group nogroup
ErrorLog %[1]s/error.log
LogLevel error
DocumentRoot %[1]s/html
DefaultRuntimeDir %[1]s
KeepAlive On
MaxKeepAliveRequests 0
KeepAliveTimeout 60
ThreadLimit 150
ThreadsPerChild 150
MaxRequestWorkers 150
ListenBacklog 1024`

func (apache) Server(p Params, listen Endpoint) []string {
	return DocumentServer([]int{p.Size}, listen)
}

// DocumentServer is the command of a server with documents of these sizes and of those of the
// study.
func DocumentServer(more []int, listen Endpoint) []string {
	port := strconv.Itoa(listen.Port)
	dir, at := "/tmp/unnest-apache-"+port, port
	if listen.Address != "" {
		at = listen.Address + ":" + port
	}
	var sizes []string
	for _, size := range slices.Concat(documents, more) {
		if size > 0 && !slices.Contains(sizes, strconv.Itoa(size)) {
			sizes = append(sizes, strconv.Itoa(size))
		}
	}
	return []string{"sh", "-c", apacheScript, "apache", dir, strings.Join(sizes, " "), fmt.Sprintf(apacheConfiguration, dir, at), port,
		apacheProgram, "-X", "-f", dir + "/apache.conf"}
}

// DomainPatience is how long a client of a domain waits for an answer. An emulated VM at its limit
// needs 2 to 3 s for each of the 100 requests that the clients have open: with a shorter patience
// it works for clients that are gone, and its throughput collapses.
const DomainPatience = 10 * time.Second

// DomainClient is the command that loads one domain with rate requests/s, each on a connection
// of its own, from the client addresses, and counts failures.
func DomainClient(p Params, target Endpoint, rate int, clients []string) []string {
	p.Rate = rate
	args := append(newApache().Client(p, target), "-patience", DomainPatience.String())
	if len(clients) > 0 {
		args = append(args, "-sources", strings.Join(clients, ","))
	}
	return args
}

// ParseDomainLoad parses what the command of DomainClient prints. A load without a single answer
// in its measured part is an error that names why.
func ParseDomainLoad(stdout []byte) (LoadReport, error) {
	r, err := readLoad(stdout)
	if err != nil {
		return r, fmt.Errorf("apache: %w", err)
	}
	if !(r.Planned > 0) || !(r.Elapsed > 0) {
		return r, errors.New("apache: the report is of a load without a schedule")
	}
	if r.Served == 0 {
		return r, fmt.Errorf("apache: all answers came after the measured %v s", r.Seconds)
	}
	return r, nil
}

// VersionArgs is the command that prints the version.
func (apache) VersionArgs() []string { return []string{apacheProgram, "-v"} }

var apacheVersion = regexp.MustCompile(`Server version: Apache/(\S+)`)

func (apache) ParseVersion(output []byte) (string, error) {
	return parseVersion("apache", apacheVersion, bytes.TrimSpace(output))
}
