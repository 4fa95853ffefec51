package brfusion

import "unnest/internal/cni/attachment"

// SetState lets each test have its own.
func SetState(dir string) { state = attachment.State(dir) }
