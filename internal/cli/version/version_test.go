package version

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestInfo(t *testing.T) {
	settings := func(modified string) []debug.BuildSetting {
		return []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: modified}}
	}
	tests := []struct {
		name              string
		tag, revision     string
		build             *debug.BuildInfo
		version, expected string
	}{
		{"nothing known", "", "", nil, "devel", "unknown"},
		{"linker", "v1.2.3", "def", &debug.BuildInfo{Settings: settings("true")}, "v1.2.3", "def"},
		{"work tree", "", "", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: settings("false")}, "devel", "abc"},
		{"work tree with changes", "", "", &debug.BuildInfo{Settings: settings("true")}, "devel", "abc-dirty"},
		{"installed from a proxy", "", "", &debug.BuildInfo{Main: debug.Module{Version: "v1.0.0"}}, "v1.0.0", "unknown"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := info(tt.tag, tt.revision, tt.build)
			want := Info{tt.version, tt.expected, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			if got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}
