package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"unnest/internal/testbed/place"
)

// What a process has over its like from its start on, such as where its pages lie, it
// keeps, and no interval over blocks shows that: of one configuration entered twice,
// one has been measured a fifth slower than the other in every block of a run. Servers
// are therefore started anew for each block, so that what one instance has over
// another varies from block to block. Block and boot of a sample in a guest name the
// instance that it was measured with.

// serverPatience is how long a server may take to end, and then until it takes
// clients. To log in is a part of it the first time.
const serverPatience = 30 * time.Second

// server is a server of a configuration. A shell stays in its place from block to
// block and starts it anew when it is told to, so that neither a login nor the way
// into a container is in between.
type server struct {
	command  serverCommand
	patience time.Duration // how long it may take to end, and until it takes clients
	round    int           // how often it was started
	words    *watch        // of the server and of the shell
	tell     io.Writer     // the shell, which starts the server anew at each line
	stop     func()        // ends the shell, and the server with it; nil: never started
	ended    chan struct{} // closed when the shell has ended, with err
	err      error
}

// serverScript runs its arguments anew for each line that it reads. It answers with
// that line when the process before has been waited for: it is gone then, and its
// ports are free. It says so when one ends by itself.
const serverScript = `serve() {
	trap 'kill -s KILL "$server"; wait "$server"; exit' TERM
	"$@" </dev/null & server=$!
	wait "$server"
	echo "exit code $?` + serverEnd + `"
}
exec 2>&1
while read -r round; do
	[ -z "$serving" ] || { kill "$serving"; wait "$serving"; } 2>/dev/null
	echo "$round"
	serve "$@" & serving=$!
done
`

// serverEnd follows the exit code of a server that has ended by itself.
const serverEnd = ": the server has ended"

// startServers starts the target's servers, or starts them anew, and waits until each
// takes clients.
func (s *service) startServers(ctx context.Context) error {
	var g errgroup.Group
	for _, one := range s.servers {
		g.Go(func() error {
			if err := one.start(ctx, s.place); err != nil {
				return s.machines.explain(fmt.Errorf("start server %s: %w", one.command, err))
			}
			return nil
		})
	}
	return g.Wait()
}

// stopServers ends the target's servers, and does not wait for it.
func (s *service) stopServers() {
	for _, one := range s.servers {
		if one.stop != nil {
			one.stop()
		}
	}
}

// start ends the server, if it runs, waits until it is gone, starts it anew in p and
// waits until it takes clients. It lives until stop, not until the end of ctx.
func (s *server) start(ctx context.Context, p place.Place) error {
	if !s.standing() {
		if err := s.enter(ctx, p); err != nil {
			return err
		}
	}
	s.round++
	round := fmt.Sprintf("unnest round %d", s.round)
	gone := s.words.await(round + "\n")
	_, _ = io.WriteString(s.tell, round+"\n") // a shell that does not take it has ended, which is heard
	if _, err := s.hear(ctx, gone, "the one before has not ended"); err != nil {
		return err
	}
	said, err := s.hear(ctx, s.words.await(s.command.ready, serverEnd), fmt.Sprintf("it does not say %q", s.command.ready))
	if err != nil {
		return err
	}
	if words, ended := strings.CutSuffix(said, serverEnd); ended {
		return fmt.Errorf("it ended at once: %s", strings.TrimSpace(words))
	}
	return nil
}

// standing reports whether the shell waits for being told.
func (s *server) standing() bool {
	if s.stop == nil {
		return false
	}
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

// enter starts the shell in p.
func (s *server) enter(ctx context.Context, p place.Place) error {
	// A pipe of the system: one of Go's would be read for a command on this host, whose
	// end is not told before that reader's, which waits for the next line.
	in, tell, err := os.Pipe()
	if err != nil {
		return err
	}
	hangUp := func() {
		_ = in.Close()
		_ = tell.Close()
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.words = &watch{}
	process, err := p.Start(ctx, place.Command{
		Args:  append([]string{"sh", "-c", serverScript, "server"}, s.command.args...),
		Stdin: in, Stdout: s.words, Stderr: s.words,
	})
	if err != nil {
		stop()
		hangUp()
		return err
	}
	context.AfterFunc(ctx, hangUp)
	ended := make(chan struct{})
	s.tell, s.stop, s.ended, s.err = tell, stop, ended, nil
	go func() {
		defer close(ended)
		defer stop()
		if s.err = process.Wait(); s.err == nil {
			s.err = errors.New("exit code 0")
		}
	}()
	return nil
}

// hear waits for a text that the server or its shell says, and returns what was said
// up to its end; otherwise is told when it is not said in time.
func (s *server) hear(ctx context.Context, text <-chan string, otherwise string) (string, error) {
	patience := time.NewTimer(s.patience)
	defer patience.Stop()
	select {
	case said := <-text:
		return said, nil
	case <-s.ended:
		return "", fmt.Errorf("the shell that starts it has ended: %w: %s", s.err, s.words)
	case <-patience.C:
		return "", fmt.Errorf("%s after %v: %s", otherwise, s.patience, s.words)
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// watch waits for texts in what is written to it.
type watch struct {
	mu     sync.Mutex
	seen   []byte // the last of what was written since the last text that was found
	wanted []string
	found  chan string
}

// watched is how much is kept to search in and to quote.
const watched = 4096

// await returns a channel that gets what is written up to the end of one of texts,
// whichever comes first. What was awaited before is forgotten, and so is what was
// written up to the end of the text that was found then.
func (w *watch) await(texts ...string) <-chan string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wanted, w.found = texts, make(chan string, 1)
	w.search()
	return w.found
}

func (w *watch) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, p...)
	w.search()
	if extra := len(w.seen) - watched; extra > 0 {
		w.seen = append(w.seen[:0], w.seen[extra:]...)
	}
	return len(p), nil
}

// search looks for the first of the texts that are wanted.
func (w *watch) search() {
	end := -1
	for _, text := range w.wanted {
		if i := bytes.Index(w.seen, []byte(text)); i >= 0 && (end < 0 || i+len(text) < end) {
			end = i + len(text)
		}
	}
	if end < 0 {
		return
	}
	w.found <- string(w.seen[max(0, end-watched):end])
	w.seen, w.wanted = w.seen[end:], nil
}

func (w *watch) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(bytes.TrimSpace(w.seen))
}
