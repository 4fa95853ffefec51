// Command manpages writes the manual, the same in Markdown, and the shell completions of unnest, generated
// from its commands, into a directory tree below /usr/share: manpages DIRECTORY VERSION. The date of the
// pages is that of SOURCE_DATE_EPOCH, so that equal sources make equal pages.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"unnest.io/unnest/internal/cli"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: manpages DIRECTORY VERSION")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "manpages:", err)
		os.Exit(1)
	}
}

func write(dir, version string) error {
	root := cli.Commands()
	root.DisableAutoGenTag = true
	man, markdown := filepath.Join(dir, "man/man1"), filepath.Join(dir, "doc/unnest/commands")
	for _, one := range []string{man, markdown} {
		if err := os.MkdirAll(one, 0o755); err != nil {
			return err
		}
	}
	header := &doc.GenManHeader{Section: "1", Source: "unnest " + version, Manual: "Unnest"}
	if err := doc.GenManTree(root, header, man); err != nil {
		return fmt.Errorf("write manual: %w", err)
	}
	if err := doc.GenMarkdownTree(root, markdown); err != nil {
		return fmt.Errorf("write manual as Markdown: %w", err)
	}
	for _, shell := range []struct {
		path  string
		write func(*cobra.Command, string) error
	}{
		{"bash-completion/completions/unnest", func(c *cobra.Command, path string) error { return c.GenBashCompletionFileV2(path, true) }},
		{"zsh/vendor-completions/_unnest", (*cobra.Command).GenZshCompletionFile},
		{"fish/vendor_completions.d/unnest.fish", func(c *cobra.Command, path string) error { return c.GenFishCompletionFile(path, true) }},
	} {
		path := filepath.Join(dir, shell.path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := shell.write(root, path); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
	}
	return nil
}
