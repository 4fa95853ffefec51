package bench

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"unnest/internal/measure/stack"
	"unnest/internal/testbed/guest"
	"unnest/internal/testbed/place"
)

// enginesOf lists the commands of the container engines that a stack's layer may
// stand for on a host that the user has named: that which it is called after, then
// those that take the same command line.
func enginesOf(l stack.Layer) []string {
	if l == stack.Docker {
		return []string{"docker", "podman"}
	}
	return []string{"nerdctl", "docker", "podman"}
}

// startEngine finds the host's container engine, the first of engines that is in
// PATH, and has it load the image unless it holds it. It returns what a reader of
// the results has to know. The image stays, for the next run.
func (r *remote) startEngine(ctx context.Context, engines []string, arch string, a *guest.Archive) (note string, err error) {
	host := r.configuration.Host
	if want := string(stack.X8664); arch != want {
		return "", fmt.Errorf("%s is %s, and the programs of containers are for %s: use stack ssh", host, arch, want)
	}
	version, err := r.findEngine(ctx, engines)
	if err != nil {
		return "", err
	}
	r.image = a.Name
	note = fmt.Sprintf("The containers on %s are run by %s. Their image stays there for the next run; remove it by `%s rmi %s`.",
		host, version, r.engine, a.Name)
	if err := r.place.Put(ctx, path.Join(r.dir, ".engine"), 0o600, strings.NewReader(r.engine+"\n"+r.image+"\n")); err != nil {
		return "", err
	}
	if place.Run(ctx, r.place, r.engine, "image", "inspect", a.Name) == nil {
		return note, nil
	}
	r.step(fmt.Sprintf("load the image of containers, %d MiB, on %s (once)", a.Size>>20, host))
	if err := r.load(ctx, a); err != nil {
		return "", r.explainEngine(fmt.Errorf("load the image of containers, %d MiB: %w", a.Size>>20, err))
	}
	return note, nil
}

// findEngine finds the engine, and whether it serves this user, and returns what it
// says of its version. A container of a run whose directory is gone, because the
// engine made it after all when it was told to stop, is removed.
func (r *remote) findEngine(ctx context.Context, engines []string) (version string, err error) {
	const script = `dir=$1
shift
for engine; do command -v "$engine" >/dev/null && break; engine=; done
[ -n "$engine" ] || exit 0
echo "$engine"
said=$("$engine" ps --all --format '{{.Names}}' 2>&1) || { echo "$said" | tail -n 1 >&2; exit 1; }
echo "$said" | sed -n 's/^\(unnest-run-[^-]*\)-.*/\1 &/p' | while read -r run name; do
	[ -e "${dir%/*}/$run" ] || "$engine" rm --force "$name" >/dev/null
done
"$engine" --version
`
	host := r.configuration.Host
	out, err := place.Output(ctx, r.place, append([]string{"sh", "-c", script, "find", r.dir}, engines...)...)
	if ctx.Err() != nil {
		return "", err
	}
	name, version, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	var exit *place.ExitError
	switch {
	case name != "" && errors.As(err, &exit):
		return "", fmt.Errorf("%s on %s does not serve this user: %s: start it there, or log in as a user that it serves", name, host, exit.Stderr)
	case err != nil:
		return "", err
	case name == "":
		return "", fmt.Errorf("%s has no container engine: install %s there, or use stack ssh", host, strings.Join(engines, " or "))
	}
	r.engine = name
	return version, nil
}

// load streams the image to the engine, compressed: an emulated guest takes in some
// MB a second, many hosts are not near, and not every engine takes such an archive
// from a pipe.
func (r *remote) load(ctx context.Context, a *guest.Archive) error {
	content, to := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := compress(ctx, a, to)
		packed <- err
		_ = to.CloseWithError(err)
	}()
	process, err := r.place.Start(ctx, place.Command{Args: []string{"sh", "-c", `gzip -dc | "$1" load >/dev/null`, "load", r.engine}, Stdin: content})
	if err == nil {
		err = process.Wait()
	}
	_ = content.Close() // it may have ended before its input
	if unpacked := <-packed; unpacked != nil && !errors.Is(unpacked, io.ErrClosedPipe) {
		return unpacked
	}
	return err
}

// compress writes an image's archive, compressed in little time.
func compress(ctx context.Context, a *guest.Archive, to io.Writer) error {
	buffered := bufio.NewWriterSize(to, 256<<10)
	w, err := gzip.NewWriterLevel(buffered, gzip.BestSpeed)
	if err == nil {
		err = a.Write(ctx, w)
	}
	if err != nil {
		return err
	}
	return errors.Join(w.Close(), buffered.Flush())
}

// container starts a container on the host, whose name begins with that of the run's
// directory.
func (r *remote) container(ctx context.Context, name string, options ...string) (place.Place, error) {
	name = path.Base(r.dir) + "-" + name
	args := append([]string{r.engine, "run", "--detach", "--name", name}, options...)
	if err := place.Run(ctx, r.place, append(args, r.image)...); err != nil {
		return nil, r.explainEngine(err)
	}
	return place.Container{Place: r.place, Engine: r.engine, Name: name}, nil
}

// explainEngine adds the mend to an error of the container engine.
func (r *remote) explainEngine(err error) error {
	if strings.Contains(err.Error(), "no space left on device") {
		return fmt.Errorf("%w: make room on %s where %s keeps its images", err, r.configuration.Host, r.engine)
	}
	return err
}
