package install

import (
	"fmt"
	"strings"
	"time"
)

// Names that Kubernetes' users see.
const (
	Resource      = "unnest.io/nic"
	ConditionType = "UnnestNetworkReady"
)

// health is what a check of the node has found.
type health struct {
	nics NICs
	err  error // why pods cannot get NICs; nil: they can
}

// condition is a condition of a node.
type condition struct {
	ready           bool
	reason, message string
}

// maxMessage bounds a condition's message, in bytes. An error may quote a program's output.
const maxMessage = 1024

// condition says in words what the check has found.
func (h health) condition(now time.Time) condition {
	c := condition{ready: h.err == nil, reason: "NICsAvailable", message: "pods can get NICs"}
	switch n := h.nics; {
	case h.err != nil:
		c.reason, c.message = "NICsUnavailable", "pods cannot get NICs: "+strings.ReplaceAll(h.err.Error(), "\n", "; ")
	case n.full():
		c.reason, c.message = "AllNICsInUse", fmt.Sprintf("pods have all %d NICs: %s", n.Attached, n.Limited)
	case n.Known:
		c.message = fmt.Sprintf("pods have %d NICs and can get %d more", n.Attached, n.Free)
	}
	if len(c.message) > maxMessage {
		c.message = strings.ToValidUTF8(c.message[:maxMessage], "")
	}
	if left := h.nics.Expires.Sub(now); !h.nics.Expires.IsZero() && left > 0 {
		c.message += fmt.Sprintf("; the node's credentials are valid for %d days", int(left/(24*time.Hour)))
	}
	return c
}

// capacity returns how many NICs the node has for pods that ask for one, if that is known.
// before is what it was; -1: unknown. A node whose daemon does not answer takes no more pods, but
// its capacity never falls below what its pods have: the kubelet would end some of them at its
// next start.
func (h health) capacity(before NICs, reserve int) (int, bool) {
	switch {
	case h.nics.Known:
		return max(0, h.nics.Attached+h.nics.Free-reserve), true
	case h.err != nil && before.Known:
		return min(before.Attached, max(0, before.Attached+before.Free-reserve)), true
	}
	return 0, false
}
