package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// readyInterval is the pause between two tests whether a tool listens.
	readyInterval = 20 * time.Millisecond
	// startLimit bounds the start of a tool, as a multiple of the job's limit: a database
	// initializes its files first.
	startLimit = 6
	nobody     = 65534
)

// tool is a running tool in its own directory.
type tool struct {
	cmd    *exec.Cmd
	dir    string
	stdout bytes.Buffer
	stderr lockedBuffer
	ended  chan struct{} // closed after err is set
	err    error
}

// lockedBuffer can be read while a tool writes to it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// last returns the end of what was written, in one line.
func (l *lockedBuffer) last() string {
	const most = 400
	l.mu.Lock()
	defer l.mu.Unlock()
	text := strings.Join(strings.Fields(l.b.String()), " ")
	return text[max(0, len(text)-most):]
}

// stop kills the tool and its children, waits for it and removes its directory.
func (p *tool) stop() error {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // it may have ended already
	<-p.ended
	return os.RemoveAll(p.dir)
}

// startTool starts a tool in its directory. The tool ends with the agent.
func (j *job) startTool(o Run) (*tool, error) {
	dir, err := os.MkdirTemp("", "unnest-localhost-")
	if err != nil {
		return nil, err
	}
	p := &tool{dir: dir, ended: make(chan struct{})}
	if err = p.prepare(o); err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", o.Args[0], err), os.RemoveAll(dir))
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

func (p *tool) prepare(o Run) error {
	fill := strings.NewReplacer("{dir}", p.dir)
	var args []string
	for _, a := range o.Args {
		args = append(args, fill.Replace(a))
	}
	for name, content := range o.Files {
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte(fill.Replace(content)), 0o644); err != nil {
			return err
		}
	}
	p.cmd = exec.Command(args[0], args[1:]...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = p.dir, &p.stdout, &p.stderr
	p.cmd.WaitDelay = time.Second
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if o.Unprivileged && os.Getuid() == 0 {
		p.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		return os.Chown(p.dir, nobody, nobody)
	}
	return nil
}

func (j *job) run(o Run) (Ran, error) {
	if len(o.Args) == 0 {
		return Ran{}, errors.New("run: the request has no command")
	}
	p, err := j.startTool(o)
	if err != nil {
		return Ran{}, err
	}
	if o.Ready == "" {
		return j.runToEnd(p)
	}
	if err := j.awaitReady(p, o.Ready); err != nil {
		return Ran{}, errors.Join(err, p.stop())
	}
	return Ran{Handle: j.keep(p)}, nil
}

func (j *job) runToEnd(p *tool) (Ran, error) {
	ctx, cancel := context.WithTimeout(j.ctx, j.limit())
	defer cancel()
	name := filepath.Base(p.cmd.Path)
	select {
	case <-p.ended:
	case <-ctx.Done():
		return Ran{}, errors.Join(fmt.Errorf("%s did not end: %w: %s", name, ctx.Err(), p.stderr.last()), p.stop())
	}
	if p.err != nil {
		return Ran{}, errors.Join(fmt.Errorf("%s: %w: %s", name, p.err, p.stderr.last()), p.stop())
	}
	return Ran{Output: p.stdout.String()}, p.stop()
}

// awaitReady waits until a connection to the tool succeeds.
func (j *job) awaitReady(p *tool, address string) error {
	name := filepath.Base(p.cmd.Path)
	for end := time.Now().Add(startLimit * j.limit()); ; {
		c, err := j.dial(target{network: "tcp", address: address, patience: j.patience})
		if err == nil {
			return c.Close()
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%s ended early: %w: %s", name, p.err, p.stderr.last())
		case <-j.ctx.Done():
			return j.ctx.Err()
		case <-time.After(readyInterval):
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s does not listen at %s: %w: %s", name, address, err, p.stderr.last())
		}
	}
}

// helper is a server in its own process, which SIGKILL ends.
type helper struct {
	cmd   *exec.Cmd
	stdin io.Closer
}

func (h *helper) stop() error {
	err := h.cmd.Process.Kill()
	_ = h.cmd.Wait() // the error says that it was killed
	_ = h.stdin.Close()
	return err
}

// serveInProcess runs this binary a second time, as a server.
func (j *job) serveInProcess(o Serve) (Served, error) {
	o.Process = false
	text, err := json.Marshal(o)
	if err != nil {
		return Served{}, err
	}
	cmd := exec.Command("/proc/self/exe", "serve", string(text))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return Served{}, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return Served{}, err
	}
	var stderr lockedBuffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return Served{}, fmt.Errorf("start a server: %w", err)
	}
	h := &helper{cmd: cmd, stdin: stdin}
	var served Served
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &served)
	}
	if err != nil {
		_ = h.stop()
		return Served{}, fmt.Errorf("start a server: %w: %s", err, stderr.last())
	}
	served.Handle = j.keep(h)
	return served, nil
}

// RunServer runs the server of a Serve request, in JSON. It writes the answer to out and
// serves until in or ctx ends.
func RunServer(ctx context.Context, request string, in io.Reader, out io.Writer) error {
	var o Serve
	if err := json.Unmarshal([]byte(request), &o); err != nil {
		return fmt.Errorf("read the request to serve: %w", err)
	}
	j := &job{agent: &agent{}, ctx: ctx}
	t, address, err := j.start(o)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(Served{Address: address}); err != nil {
		return errors.Join(err, t.stop())
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, in) // any error ends it, too
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	return t.stop()
}
