package e2e

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"unnest.io/unnest/internal/testbed/place"
)

// shell runs one script after the other in a guest. A session for each script would be most of
// the work of an emulated guest.
type shell struct {
	in  io.WriteCloser
	out *bufio.Reader
}

// openShell starts a shell by a command. It ends with close, or with the connection.
func (m *node) openShell(args ...string) (*shell, error) {
	in, stdin := io.Pipe()
	stdout, out := io.Pipe()
	p, err := m.ssh.Start(m.nodes.t.Context(), place.Command{Args: args, Stdin: in, Stdout: out, Stderr: out})
	if err != nil {
		return nil, err
	}
	go func() {
		err := cmp.Or(p.Wait(), io.EOF)
		_ = in.CloseWithError(err) // else a script for a shell that has ended would wait for ever
		out.CloseWithError(err)
	}()
	return &shell{stdin, bufio.NewReader(stdout)}, nil
}

// do runs a script and returns its output. An error contains both.
func (s *shell) do(script string) (string, error) {
	out, code, err := s.run(script)
	if err == nil && code != "0" {
		err = fmt.Errorf("exit status %s", code)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", script, err, out)
	}
	return out, err
}

// run runs a script and returns its output and its exit status.
func (s *shell) run(script string) (out, code string, err error) {
	const mark = "exit status of the script: "
	if _, err := fmt.Fprintf(s.in, "{\n%s\n} </dev/null 2>&1; printf '\\n%s%%d\\n' $?\n", script, mark); err != nil {
		return "", "", err
	}
	for {
		line, err := s.out.ReadString('\n')
		if code, ok := strings.CutPrefix(line, mark); ok {
			return strings.TrimSuffix(out, "\n"), strings.TrimSpace(code), nil
		}
		out += line
		if err != nil {
			return out, "", fmt.Errorf("the shell ended: %w", err)
		}
	}
}

// close ends the shell and waits for its end. It does nothing if s is nil.
func (s *shell) close() error {
	if s == nil {
		return nil
	}
	err := s.in.Close()
	_, readErr := io.Copy(io.Discard, s.out)
	return errors.Join(err, readErr)
}
