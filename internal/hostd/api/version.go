package api

import "runtime/debug"

// Version returns the version of the binary.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}
