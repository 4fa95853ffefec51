// Package version knows which unnest this is, and prints it.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"unnest/internal/cli/terminal"
	"unnest/internal/cli/usage"
)

// Set by the linker: -X unnest/internal/cli/version.tag=v1.2.3. The tool chain
// leaves out the revision where it is told not to look for one.
var tag, revision string

// Info says which unnest this is.
type Info struct {
	Version  string // tag, "v1.2.3-4-gabcdef0-dirty" or "devel"
	Revision string // git revision, "unknown" when built outside a work tree
	Go       string // version of the tool chain
	Platform string // "linux/amd64"
}

// Get returns what the linker was told, completed by what the tool chain wrote
// into the binary.
func Get() Info {
	build, _ := debug.ReadBuildInfo()
	return info(tag, revision, build)
}

func info(tag, revision string, build *debug.BuildInfo) Info {
	i := Info{tag, revision, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
	if build != nil {
		if i.Version == "" && build.Main.Version != "(devel)" {
			i.Version = build.Main.Version
		}
		if i.Revision == "" {
			i.Revision = vcs(build.Settings)
		}
	}
	if i.Version == "" {
		i.Version = "devel"
	}
	if i.Revision == "" {
		i.Revision = "unknown"
	}
	return i
}

// vcs returns the revision in settings, marked when the work tree had changes.
func vcs(settings []debug.BuildSetting) string {
	values := map[string]string{}
	for _, s := range settings {
		values[s.Key] = s.Value
	}
	revision := values["vcs.revision"]
	if revision != "" && values["vcs.modified"] == "true" {
		revision += "-dirty"
	}
	return revision
}

// String returns one line for people.
func (i Info) String() string {
	return fmt.Sprintf("unnest %s (revision %s, %s, %s)", i.Version, i.Revision, i.Go, i.Platform)
}

// NewCmd returns the command "unnest version".
func NewCmd(streams terminal.Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print which unnest this is",
		Args:  usage.Args(),
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(streams.Out, Get())
			return err
		},
	}
}
