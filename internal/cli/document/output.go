package document

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/render"
	"unnest.io/unnest/internal/report/render/text"
)

// Output says how a document is printed and where to.
type Output struct {
	Format  string // a name of render.Formats; empty: by the extension of File, else text
	File    string // empty: standard output
	JSON    bool   // the same as Format json
	Samples bool   // the document has the samples of a run
}

// AddFlags gives cmd the flags --format and --output.
func (o *Output) AddFlags(cmd *cobra.Command) {
	AddFormat(cmd, &o.Format, o.Samples)
	cmd.Flags().StringVarP(&o.File, "output", "o", "", "write to `FILE` instead of standard output; a failed write changes nothing")
}

// AddFormat gives cmd the flag --format for documents with or without samples.
func AddFormat(cmd *cobra.Command, format *string, samples bool) {
	names := render.Names(samples)
	cmd.Flags().VarP(usage.Choice(format, names...), "format", "f", "output `FORMAT`: "+strings.Join(names, ", ")+" (default: by the extension of --output, else text)")
}

// AddJSONFlag gives cmd the flag --json, which excludes --format.
func (o *Output) AddJSONFlag(cmd *cobra.Command, help string) {
	cmd.Flags().BoolVar(&o.JSON, "json", false, help)
	cmd.MarkFlagsMutuallyExclusive("json", "format")
}

// Check returns an error unless the document can have the format, and CheckFile's. Commands
// call it before they start to work.
func (o Output) Check() error {
	_, err := o.format()
	return errors.Join(err, CheckFile(o.File))
}

// CheckFile returns an error unless the file can be made or replaced. An empty name is standard
// output.
func CheckFile(name string) error {
	if name == "" {
		return nil
	}
	path := name
	if target, err := filepath.EvalSymlinks(name); err == nil {
		path = target
	}
	switch info, err := os.Stat(path); {
	case err == nil && info.IsDir():
		return fmt.Errorf("write %s: it is a directory: name a file in it", name)
	case err == nil && !info.Mode().IsRegular(): // a device is not replaced
		return nil
	}
	switch err := unix.Faccessat(unix.AT_FDCWD, filepath.Dir(path)+"/", unix.W_OK|unix.X_OK, unix.AT_EACCESS); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("write %s: %w: make its directory first", name, err)
	case err != nil:
		return fmt.Errorf("write %s: %w: name a file in another directory", name, err)
	}
	return nil
}

// Print prints doc. Text takes the width and the colours of the terminal.
func (o Output) Print(streams terminal.Streams, doc document.Document) error {
	format, err := o.format()
	if err != nil {
		return err
	}
	if o.File != "" {
		return WriteFile(o.File, func(w io.Writer) error { return format.Print(w, doc) })
	}
	if format.Name == "text" {
		err = text.Print(streams.Out, doc, text.Options{Width: streams.OutWidth, Colour: streams.Colour})
	} else {
		err = format.Print(streams.Out, doc)
	}
	if err != nil {
		return fmt.Errorf("print %s as %s: %w", cmp.Or(doc.Command, "report"), format.Name, err)
	}
	return nil
}

// format returns the format asked for, by name or by the extension of the file, if the document
// can have it. A file without an extension is text.
func (o Output) format() (render.Format, error) {
	format, err := o.chosen()
	if err == nil && format.Samples && !o.Samples {
		err = usage.Errorf("format %s prints the samples of one run: use unnest report on it, or another format: %s", format.Name, strings.Join(render.Names(false), ", "))
	}
	return format, err
}

func (o Output) chosen() (render.Format, error) {
	switch {
	case o.JSON:
		return render.FormatNamed("json")
	case o.Format != "":
		return render.FormatNamed(o.Format)
	}
	var best render.Format
	var known []string
	for _, f := range render.Formats {
		if o.Samples || !f.Samples {
			known = append(known, fmt.Sprintf("%s (%s)", f.Extension, f.Name))
		}
		if strings.HasSuffix(o.File, f.Extension) && len(f.Extension) > len(best.Extension) {
			best = f
		}
	}
	if best.Print != nil {
		return best, nil
	}
	if extension := filepath.Ext(o.File); extension != "" {
		return best, usage.Errorf("--output %s: unknown extension %s: want %s, or add --format", o.File, extension, strings.Join(known, ", "))
	}
	return render.FormatNamed("text")
}

// WriteFile writes what write writes to path. After an error path holds what it held
// before. WriteFile follows a symbolic link, and writes to a device or pipe instead of
// replacing it.
func WriteFile(path string, write func(io.Writer) error) error {
	var content bytes.Buffer
	if err := write(&content); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := CheckFile(path); err != nil {
		return err
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = os.WriteFile(path, content.Bytes(), 0)
	} else {
		err = replace(path, content.Bytes())
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, WithoutPath(err))
	}
	return nil
}

// replace writes content to a new file in the directory of path and renames it.
func replace(path string, content []byte) (err error) {
	name := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"."+rand.Text())
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666) // less the umask
	if err != nil {
		return err
	}
	success := false
	defer func() {
		if !success {
			err = errors.Join(err, os.Remove(name))
		}
	}()
	_, err = f.Write(content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(name, path); err != nil {
		return err
	}
	success = true
	return nil
}

// WithoutPath drops from err the path of the file, which the caller names itself.
func WithoutPath(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
