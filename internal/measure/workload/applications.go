package workload

import (
	"cmp"
	_ "embed"
	"fmt"
	"regexp"
	"strconv"
)

// The kinds of memcached's requests.
const (
	Get = "get"
	Set = "set"
)

// memcached is loaded as by memtier_benchmark (Bacou et al. 2019, Table 1): 4 threads with 50
// connections each, and one SET for ten GETs. Without a rate, each connection sends its next
// request when it has the answer to the last one.
type memcached struct{ load }

func newMemcached() memcached {
	return memcached{load{name: "memcached", kinds: Get + " " + Set, threads: 4, conns: 200, size: 32, maxSize: 1 << 19}}
}

const memcachedProgram = "/usr/bin/memcached"

func (memcached) Programs() []string { return []string{memcachedProgram} }

func (memcached) Server(_ Params, listen Endpoint) []string {
	port := strconv.Itoa(listen.Port)
	args := []string{"sh", "-c", serverScript, "memcached", port, memcachedProgram, "-u", "root", "-p", port, "-U", "0", "-c", "1024"}
	if listen.Address != "" {
		args = append(args, "-l", listen.Address)
	}
	return args
}

func (memcached) VersionArgs() []string { return []string{memcachedProgram, "-V"} }

var memcachedVersion = regexp.MustCompile(`(?m)^memcached (\S+)`)

func (memcached) ParseVersion(output []byte) (string, error) {
	return parseVersion("memcached", memcachedVersion, output)
}

// nginx serves a file at a constant rate, as loaded by wrk2 (Bacou et al. 2019, Table 1): 2
// threads, and 100 connections in all.
type nginx struct{ load }

func newNginx() nginx {
	return nginx{load{name: "nginx", threads: 2, conns: 100, size: 1024, maxSize: 1 << 19, openOnly: true}}
}

const nginxProgram = "/usr/sbin/nginx"

func (nginx) Programs() []string { return []string{nginxProgram} }

// NginxFile is the path of the file that the server has. Its content are the decimal numbers
// from 1, each on a line, cut to the size.
const NginxFile = "/file"

// nginxScript writes the server's directory before serverScript.
const nginxScript = `dir=$1 size=$2 conf=$3; shift 3
busybox mkdir -p "$dir/html" && busybox seq 1 200000 | busybox head -c "$size" >"$dir/html` + NginxFile + `" && busybox echo "$conf" >"$dir/nginx.conf" || exit
` + serverScript

// nginxConfiguration has one worker, as nginx has by default: the server's only process, so
// that ending it ends the server. Connections stay open, because wrk2 keeps them, too. There
// is no log of accesses, which would measure the disk.
//
//go:embed nginx.conf
var nginxConfiguration string

func (n nginx) Server(p Params, listen Endpoint) []string {
	port := strconv.Itoa(listen.Port)
	dir, at, size := "/tmp/unnest-nginx-"+port, port, cmp.Or(p.Size, n.size)
	if listen.Address != "" {
		at = listen.Address + ":" + port
	}
	return []string{"sh", "-c", nginxScript, "nginx", dir, strconv.Itoa(size), fmt.Sprintf(nginxConfiguration, dir, at), port,
		nginxProgram, "-e", "stderr", "-p", dir, "-c", dir + "/nginx.conf"}
}

// VersionArgs has a shell, because nginx prints its version as an error.
func (nginx) VersionArgs() []string { return []string{"sh", "-c", "exec " + nginxProgram + " -v 2>&1"} }

var nginxVersion = regexp.MustCompile(`nginx version: nginx/(\S+)`)

func (nginx) ParseVersion(output []byte) (string, error) {
	return parseVersion("nginx", nginxVersion, output)
}
