package install

import (
	"fmt"
	"io"
)

// metrics writes what a check has found in the text format of Prometheus. It names no pods.
func (h health) metrics(w io.Writer) error {
	ready := 0
	if h.err == nil {
		ready = 1
	}
	text := "# HELP unnest_node_ready Whether pods of the node can get NICs, or have all of them.\n# TYPE unnest_node_ready gauge\n" +
		fmt.Sprintf("unnest_node_ready %d\n", ready)
	if h.nics.Known {
		text += "# HELP unnest_node_nics NICs of the node's pods.\n# TYPE unnest_node_nics gauge\n" +
			fmt.Sprintf("unnest_node_nics{state=\"attached\"} %d\nunnest_node_nics{state=\"free\"} %d\n", h.nics.Attached, h.nics.Free)
	}
	if !h.nics.Expires.IsZero() {
		text += "# HELP unnest_node_credentials_expire_seconds When the node's credentials expire, as Unix time.\n# TYPE unnest_node_credentials_expire_seconds gauge\n" +
			fmt.Sprintf("unnest_node_credentials_expire_seconds %d\n", h.nics.Expires.Unix())
	}
	_, err := io.WriteString(w, text)
	return err
}
