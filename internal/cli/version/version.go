// Package version reports the version of this binary.
package version

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/cli/usage"
)

// Set by the linker: -X unnest.io/unnest/internal/cli/version.tag=v1.2.3. The Go toolchain omits the
// revision with -buildvcs=false.
var tag, revision string

// Info is the version of a binary.
type Info struct {
	Version  string // tag, "v1.2.3-4-gabcdef0-dirty" or "devel"
	Revision string // git revision, or "unknown"
	Go       string // version of the Go toolchain
	Platform string // "linux/amd64"
}

// Get returns the version set by the linker, completed by the build information of the Go
// toolchain.
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
	i.Version, i.Revision = cmp.Or(i.Version, "devel"), cmp.Or(i.Revision, "unknown")
	return i
}

// vcs returns the revision in settings, with "-dirty" if the work tree had changes.
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

// String returns the version in one line.
func (i Info) String() string {
	return fmt.Sprintf("unnest %s (revision %s, %s, %s)", i.Version, i.Revision, i.Go, i.Platform)
}

// NewCmd returns the command "unnest version".
func NewCmd(streams terminal.Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of unnest",
		Args:  usage.Args(),
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(streams.Out, Get())
			return err
		},
	}
}
