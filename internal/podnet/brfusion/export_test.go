package brfusion

import "unnest/internal/podnet/attachment"

// SetState lets each test have its own.
func SetState(dir string) { state = attachment.State(dir) }
