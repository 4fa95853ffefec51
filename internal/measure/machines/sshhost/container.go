package sshhost

import (
	"bufio"
	"compress/gzip"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/testbed/image"
	"unnest.io/unnest/internal/testbed/place"
)

// Engines lists the commands that can serve a stack's engine layer on a user's host:
// first the engine that the layer is called after, then engines with the same command
// line.
func Engines(l stack.Layer) []string {
	if l == stack.Docker {
		return []string{"docker", "podman"}
	}
	return []string{"nerdctl", "docker", "podman"}
}

// StartEngine finds the first of engines in the host's PATH, and loads the image unless
// the engine has it. It returns a note for the readers of the results. The image stays
// for the next run.
func (r *Host) StartEngine(ctx context.Context, engines []string, arch string, a *image.Archive) (note string, err error) {
	host := r.configuration.Host
	if want := string(stack.X8664); arch != want {
		return "", fmt.Errorf("%s is %s, but the container image is for %s: use stack ssh", host, arch, want)
	}
	version, err := r.findEngine(ctx, engines)
	if err != nil {
		return "", err
	}
	r.image = a.Name
	note = fmt.Sprintf("%s runs the containers on %s. Their image stays there for the next run. Remove it by `%s rmi %s`.",
		version, host, r.engine, a.Name)
	if err := r.Place.Put(ctx, path.Join(r.Dir, ".engine"), 0o600, strings.NewReader(r.engine+"\n"+r.image+"\n")); err != nil {
		return "", err
	}
	if place.Run(ctx, r.Place, r.engine, "image", "inspect", a.Name) == nil {
		return note, nil
	}
	r.Step(fmt.Sprintf("load the image of containers, %d MiB, on %s (once)", a.Size>>20, host))
	if err := r.load(ctx, a); err != nil {
		return "", r.explainEngine(fmt.Errorf("load the image of containers, %d MiB: %w", a.Size>>20, err))
	}
	return note, nil
}

//go:embed engine.sh
var findScript string

// findEngine finds an engine that serves this user, and returns its version. It removes
// containers of runs whose directory is gone: an engine can make a container after it
// was told to stop.
func (r *Host) findEngine(ctx context.Context, engines []string) (version string, err error) {
	host := r.configuration.Host
	out, err := place.Output(ctx, r.Place, append([]string{"sh", "-c", findScript, "find", r.Dir}, engines...)...)
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

// load streams the image to the engine. It is compressed, because an emulated guest
// receives only some MB/s and many hosts are far away; and unpacked on the host,
// because not every engine reads a compressed archive from a pipe.
func (r *Host) load(ctx context.Context, a *image.Archive) error {
	content, to := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := compress(ctx, a, to)
		packed <- err
		_ = to.CloseWithError(err)
	}()
	process, err := r.Place.Start(ctx, place.Command{Args: []string{"sh", "-c", `gzip -dc | "$1" load >/dev/null`, "load", r.engine}, Stdin: content})
	if err == nil {
		err = process.Wait()
	}
	_ = content.Close() // the process may not have read all
	if unpacked := <-packed; unpacked != nil && !errors.Is(unpacked, io.ErrClosedPipe) {
		return unpacked
	}
	return err
}

// compress writes the archive of an image with fast compression.
func compress(ctx context.Context, a *image.Archive, to io.Writer) error {
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

// Container starts a container on the host. Its name begins with that of the run's
// directory.
func (r *Host) Container(ctx context.Context, name string, options ...string) (place.Place, error) {
	name = path.Base(r.Dir) + "-" + name
	args := append([]string{r.engine, "run", "--detach", "--name", name}, options...)
	if err := place.Run(ctx, r.Place, append(args, r.image)...); err != nil {
		return nil, r.explainEngine(err)
	}
	return place.Container{Place: r.Place, Engine: r.engine, Name: name}, nil
}

// explainEngine adds the fix to an error of the engine.
func (r *Host) explainEngine(err error) error {
	if strings.Contains(err.Error(), "no space left on device") {
		return fmt.Errorf("%w: make room on %s for the images of %s", err, r.configuration.Host, r.engine)
	}
	return err
}
