package client

import (
	"context"
	"errors"
	"os"
	"testing"

	"unnest.io/unnest/internal/measure/benchtest"
	"unnest.io/unnest/internal/measure/workload"
)

// The tool's own error message comes before its exit code.
func TestOutput(t *testing.T) {
	report, err := os.ReadFile("../../workload/testdata/iperf3-tcp-1280.json")
	if err != nil {
		t.Fatal(err)
	}
	refused, err := os.ReadFile("../../workload/testdata/iperf3-refused.json")
	if err != nil {
		t.Fatal(err)
	}
	exit := errors.New("exit code 1")
	why := errors.New("told to stop")
	stopped, stop := context.WithCancelCause(t.Context())
	stop(why)
	tests := []struct {
		name    string
		ctx     context.Context
		printed []byte
		err     error
		want    string // in the error; empty: none
	}{
		{"report", t.Context(), report, nil, ""},
		{"refused", t.Context(), refused, exit, "refused"},
		{"report, but an exit code", t.Context(), report, exit, "exit code 1"},
		{"nothing but an exit code", t.Context(), nil, exit, "exit code 1"},
		{"nothing at all", t.Context(), nil, nil, "no output"},
		{"stopped", stopped, report, nil, "iperf3: told to stop"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := &Client{execution: benchtest.Execution("NAT", benchtest.Case("tcp_stream", "iperf3", workload.TCP), 0), workload: benchtest.Case("tcp_stream", "iperf3", workload.TCP).Workload(), Printed: tt.printed, Err: tt.err, Done: make(chan struct{})}
			close(c.Done)
			out, err := c.Output(tt.ctx)
			if tt.want == "" && (err != nil || len(out.Values) == 0 || out.Operations <= 0) {
				t.Errorf("got %+v, %v; want values", out, err)
			}
			if tt.want != "" && (err == nil || !benchtest.ContainsAll(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
