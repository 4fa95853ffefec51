package brfusion

// SetPendingDir lets each test have its own.
func SetPendingDir(dir string) { pendingDir = dir }
