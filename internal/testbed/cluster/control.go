package cluster

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/testbed/lab"
)

const etcdURL = "http://127.0.0.1:2379"

// apiURL is the URL of the API server for nodes.
func (c *Cluster) apiURL() string { return "https://" + c.families()[0].server() }

// The administrators of the cluster are in this group.
const administrators = "system:masters"

// component is a program of the control plane.
type component struct {
	name      string
	health    string // URL that answers 200 when it is ready
	arguments []string
	program   string   // path; empty: the name, among the programs of Kubernetes
	socket    *os.File // descriptor 3 of a program outside of the lab's namespaces; nil: it runs in that of the host
}

// controlPlane returns etcd, the API server and its two clients, with their files in the
// directory dir.
func controlPlane(dir string, families []family) (etcd, api component, clients []component) {
	file := func(name string) string { return filepath.Join(dir, name) }
	etcd = component{name: "etcd", health: etcdURL + "/health", arguments: []string{
		"--data-dir=" + file("etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=" + etcdURL, "--advertise-client-urls=" + etcdURL, "--listen-peer-urls=http://127.0.0.1:2380",
	}}
	host := families[0].host.Addr().String()
	api = component{name: "kube-apiserver", health: "https://" + families[0].server() + "/readyz", arguments: []string{
		"--etcd-servers=" + etcdURL, "--bind-address=" + host, "--advertise-address=" + host, "--secure-port=6443",
		"--tls-cert-file=" + file("apiserver.crt"), "--tls-private-key-file=" + file("apiserver.key"), "--client-ca-file=" + file("ca.crt"),
		"--kubelet-client-certificate=" + file("kubelet-client.crt"), "--kubelet-client-key=" + file("kubelet-client.key"),
		"--kubelet-certificate-authority=" + file("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-signing-key-file=" + file("tokens.key"), "--service-account-key-file=" + file("tokens.key"),
		"--service-cluster-ip-range=" + strings.Join(serviceRanges(families), ","), "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--allow-privileged",
	}}
	client := func(name, kubeconfig, port string, more ...string) component {
		config := file(kubeconfig)
		return component{name: name, health: "https://127.0.0.1:" + port + "/healthz", arguments: append([]string{
			"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
			"--leader-elect=false", "--bind-address=127.0.0.1",
			"--tls-cert-file=" + file("apiserver.crt"), "--tls-private-key-file=" + file("apiserver.key"),
		}, more...)}
	}
	return etcd, api, []component{
		client("kube-controller-manager", "controller-manager.conf", "10257",
			"--root-ca-file="+file("ca.crt"), "--service-account-private-key-file="+file("tokens.key"), "--use-service-account-credentials"),
		client("kube-scheduler", "scheduler.conf", "10259"),
	}
}

// startControlPlane starts all components and waits until they are ready.
func (c *Cluster) startControlPlane(ctx context.Context) error {
	if err := c.writeCredentials(); err != nil {
		return err
	}
	etcd, api, clients := controlPlane(c.path(""), c.families())
	for _, part := range []component{etcd, api} {
		if err := c.start(ctx, part); err != nil {
			return err
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, part := range clients {
		g.Go(func() error { return c.start(ctx, part) })
	}
	return g.Wait()
}

// writeCredentials writes the files of the control plane.
func (c *Cluster) writeCredentials() error {
	names := []string{"127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}
	for _, f := range c.families() {
		names = append(names, f.host.Addr().String(), f.api().String())
	}
	server, err := c.keys.server("kube-apiserver", names...)
	if err != nil {
		return err
	}
	kubelet, err := c.keys.client("kube-apiserver", administrators)
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"ca.crt": c.keys.caPEM(), "tokens.key": c.keys.tokens, "apiserver.crt": server.cert, "apiserver.key": server.key,
		"kubelet-client.crt": kubelet.cert, "kubelet-client.key": kubelet.key,
	} {
		if err := os.WriteFile(c.path(name), content, 0o600); err != nil {
			return fmt.Errorf("write credentials: %w", err)
		}
	}
	return errors.Join(
		c.writeKubeconfig("controller-manager.conf", c.apiURL(), "system:kube-controller-manager"),
		c.writeKubeconfig("scheduler.conf", c.apiURL(), "system:kube-scheduler"))
}

// startLimit is how long a component may take until it is ready, on a busy machine.
const startLimit = 3 * time.Minute

// start starts a component in the host's namespace of the lab and waits until it is ready. The
// component ends with the lab.
func (c *Cluster) start(ctx context.Context, p component) error {
	ended, err := c.launch(p)
	if err == nil {
		ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not ready within %v", startLimit))
		defer cancel()
		err = c.awaitHealth(ctx, p, ended)
	}
	if err != nil {
		return fmt.Errorf("start %s: %w%s", p.name, err, lastLine(c.path(p.name+".log")))
	}
	return nil
}

// recovered waits until a component that runs is ready.
func (c *Cluster) recovered(ctx context.Context, p component) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("it runs, and is not ready within %v: end it, and repair the cluster again", startLimit))
	defer cancel()
	if err := c.awaitHealth(ctx, p, nil); err != nil {
		return fmt.Errorf("wait for %s: %w%s", p.name, err, lastLine(c.path(p.name+".log")))
	}
	return nil
}

func (c *Cluster) launch(p component) (ended <-chan error, err error) {
	log, err := os.OpenFile(c.path(p.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(cmp.Or(p.program, filepath.Join(c.options.Programs, p.name)), p.arguments...)
	cmd.Env = slices.DeleteFunc(os.Environ(), regexp.MustCompile(`(?i)^[a-z]+_proxy=`).MatchString) // none leads to the lab
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if p.socket != nil {
		cmd.ExtraFiles = []*os.File{p.socket}
		err = cmd.Start()
	} else {
		err = lab.Do(c.Lab.HostNS(), cmd.Start)
	}
	if err != nil {
		return nil, err
	}
	exit := make(chan error, 1)
	go func() { exit <- cmd.Wait() }()
	return exit, nil
}

// awaitHealth waits until the component is ready or has ended.
func (c *Cluster) awaitHealth(ctx context.Context, p component, ended <-chan error) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	for {
		if ask(ctx, client, p.health) == nil {
			return nil
		}
		select {
		case err := <-ended:
			return fmt.Errorf("it ended: %w", cmp.Or(err, errors.New("exit status 0")))
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// client returns an HTTP client in the host's namespace of the lab, with the credentials of
// the API server, which may read everything.
func (c *Cluster) client() (*http.Client, error) {
	pair, err := tls.LoadX509KeyPair(c.path("kubelet-client.crt"), c.path("kubelet-client.key"))
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(c.path("ca.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DialContext: c.Lab.Dial, DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots},
	}}, nil
}

// ask returns an error unless the URL answers with status 200.
func ask(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		why, _ := bufio.NewReader(io.LimitReader(answer.Body, 200)).ReadString('\n')
		return fmt.Errorf("%s answers %s: %s", url, answer.Status, strings.TrimSpace(why))
	}
	return nil
}

// lastLine quotes the last line of a log.
func lastLine(path string) string {
	content, err := os.ReadFile(path)
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	if err != nil || lines[len(lines)-1] == "" {
		return ""
	}
	return "; its log ends: " + lines[len(lines)-1]
}

// daemonName names the host daemon among the components.
const daemonName = "unnest-hostd"

// Health returns the components of the host's side, except the policy client, and what is wrong with
// each; nil: nothing.
func (c *Cluster) Health(ctx context.Context) (names []string, health map[string]error) {
	names, health = []string{daemonName}, map[string]error{daemonName: c.fleet.AskDaemon(ctx)}
	client, err := c.client()
	for _, p := range c.components() {
		names = append(names, p.name)
		if health[p.name] = err; err == nil {
			health[p.name] = ask(ctx, client, p.health)
		}
	}
	_, health["forward"] = c.forwardAddress()
	return append(names, "forward"), health
}

// components are the control plane, DNS and the controller of split pods, in the order in which they start.
func (c *Cluster) components() []component {
	etcd, api, clients := controlPlane(c.path(""), c.families())
	all := append([]component{etcd, api}, append(clients, c.dns())...)
	if span := c.readSpan(); span != "" {
		all = append(all, c.splitController(span))
	}
	return all
}

// Repair starts again what has ended of the host's side of the cluster that is up, and returns the
// names. It leaves pods and their NICs as they are.
func Repair(ctx context.Context) (started []string, err error) {
	c, err := View()
	if err != nil {
		return nil, err
	}
	if c.Lab, err = lab.Open(LabName); err != nil {
		return nil, fmt.Errorf("repair the cluster: %w", err)
	}
	again, forwardErr := c.forwardAgain()
	if again {
		started = append(started, "forward")
	}
	defer func() { err = errors.Join(err, forwardErr, c.Lab.Release()) }()
	repaired, err := c.fleet.RepairDaemon(ctx, c.options.Unnest)
	if repaired {
		started = append(started, daemonName)
	}
	client, clientErr := c.client()
	if err = errors.Join(err, clientErr); err != nil {
		return started, err
	}
	restart := func(p component, start func() error) {
		if err != nil {
			return
		}
		switch failed := ask(ctx, client, p.health); {
		case failed == nil:
		case errors.Is(failed, unix.ECONNREFUSED):
			if err = start(); err == nil {
				started = append(started, p.name)
			}
		default: // it runs: what it needs has just been started
			err = c.recovered(ctx, p)
		}
	}
	for _, p := range c.components() {
		restart(p, func() error { return c.start(ctx, p) })
	}
	restart(c.policyClient(), func() error { return c.startPolicyClient(ctx) })
	return started, err
}
