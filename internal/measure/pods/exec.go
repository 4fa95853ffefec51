package pods

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
)

// exec runs a command in a pod until it ends. Its end is not waited for when ctx ends.
func (b *Set) exec(ctx context.Context, pod string, command []string, s remotecommand.StreamOptions) error {
	url := b.cluster.pods.api.Post().Resource("pods").Namespace(b.plan.namespace).Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: containerName, Command: command, Stdin: s.Stdin != nil, Stdout: true, Stderr: true}, b.cluster.parameters).URL()
	sockets, err := remotecommand.NewWebSocketExecutor(b.cluster.config, "GET", url.String())
	if err != nil {
		return err
	}
	spdy, err := remotecommand.NewSPDYExecutor(b.cluster.config, "POST", url)
	if err != nil {
		return err
	}
	// API servers before 1.30, and proxies, do not pass websockets on.
	both, err := remotecommand.NewFallbackExecutor(sockets, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return err
	}
	return both.StreamWithContext(ctx, s)
}

// output returns what a command in a pod prints, also of one that fails.
func (b *Set) output(ctx context.Context, pod string, command ...string) ([]byte, error) {
	var out, errOut bytes.Buffer
	err := b.exec(ctx, pod, command, remotecommand.StreamOptions{Stdout: &out, Stderr: &errOut})
	if text := inLine(errOut.String()); err != nil && text != "" {
		err = fmt.Errorf("%w: %s", err, text)
	}
	return out.Bytes(), err
}

// server is a server that runs in a pod. It ends with its input.
type server struct {
	stdin io.Closer
	ended chan struct{} // closed when it has ended, with err
	err   error
	text  *text
}

// startServer starts a server in a pod and waits until it accepts clients.
func (b *Set) startServer(ctx context.Context, pod string, command []string, readyText string) (*server, error) {
	in, stdin := io.Pipe()
	s := &server{stdin: stdin, ended: make(chan struct{}), text: &text{want: readyText, seen: make(chan struct{})}}
	// The server outlives the start.
	outlives, cancel := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(s.ended)
		defer cancel()
		if s.err = b.exec(outlives, pod, command, remotecommand.StreamOptions{Stdin: in, Stdout: s.text, Stderr: s.text}); s.err == nil {
			s.err = errors.New("exit code 0")
		}
		_ = in.Close()
	}()
	limit, stop := context.WithTimeoutCause(ctx, serverLimit, fmt.Errorf("no answer within %v", serverLimit))
	defer stop()
	select {
	case <-s.text.seen:
		return s, nil
	case <-s.ended:
		return nil, fmt.Errorf("start server in pod %s: %w: %s", pod, s.err, inLine(s.text.String()))
	case <-limit.Done():
		cancel()
		return nil, fmt.Errorf("start server in pod %s: %w", pod, context.Cause(limit))
	}
}

func (s *server) running() bool {
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

// stop ends the server and waits for its end.
func (s *server) stop(ctx context.Context) error {
	_ = s.stdin.Close()
	limit, stop := context.WithTimeout(ctx, serverLimit)
	defer stop()
	select {
	case <-s.ended:
		return nil
	case <-limit.Done():
		return fmt.Errorf("stop server: %w", context.Cause(limit))
	}
}

// text is what a server prints.
type text struct {
	mu   sync.Mutex
	all  strings.Builder
	want string
	seen chan struct{} // closed when want was printed
	once sync.Once
}

func (t *text) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all.Write(p)
	if strings.Contains(t.all.String(), t.want) {
		t.once.Do(func() { close(t.seen) })
	}
	return len(p), nil
}

func (t *text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all.String()
}
