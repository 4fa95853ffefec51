package hostlo_test

import (
	"strings"
	"testing"
)

// An endpoint has no address and no MAC that a runtime chooses, and no published port.
// In a chain, CNI_ARGS are for the plugin before.
func TestRequests(t *testing.T) {
	ports := with("runtimeConfig", map[string]any{"portMappings": []any{map[string]any{"hostPort": 8080, "containerPort": 80}}})
	none := with("log", true)
	for _, c := range []struct {
		name  string
		edit  func(map[string]any)
		args  string
		chain bool
		code  uint
		want  string
	}{
		{"IP", none, "IgnoreUnknown=1;IP=10.201.0.9", false, 7, `give the pod the address "10.201.0.9" (CNI_ARGS IP)`},
		{"MAC", none, "IgnoreUnknown=1;MAC=02:00:00:00:00:05", false, 7, "(CNI_ARGS MAC)"},
		{"published port", ports, "", false, 7, "runtimeConfig.portMappings"},
		{"published port in a chain", ports, "", true, 7, "runtimeConfig.portMappings"},
		{"published port of a pod without a segment", edits(ports, without("segment", "key")), "", true, 7, "runtimeConfig.portMappings"},
		{"unknown argument", none, "UNNEST_SEGMNT=x", false, 4, `read "UNNEST_SEGMNT"`},
		{"misspelled key", with("segmnt", "x"), "", false, 7, `"segmnt": no such key`},
		{"for the plugin before", with("capabilities", map[string]any{"portMappings": true}), "IgnoreUnknown=1;IP=10.201.0.7;MAC=02:00:00:00:00:09", true, 0, ""},
		{"nothing", with("runtimeConfig", map[string]any{"portMappings": []any{}, "ips": nil}), "IgnoreUnknown=1;K8S_POD_NAME=p", false, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			edit := c.edit
			if c.chain {
				edit = edits(edit, l.chained(l.Pod))
			}
			config, args := l.config(edit), "CNI_ARGS="+c.args
			if a := l.Run("ADD", config, args); a.Code() != c.code || !strings.Contains(a.Message(), c.want) {
				t.Errorf("got code %d, want %d and %q", a.Code(), c.code, c.want)
			}
			if joined := len(l.daemon.requests) > 0; joined != (c.code == 0) {
				t.Errorf("a segment was requested: %v", joined)
			}
			l.Succeeds("DEL", config, args)
			l.wantNothing()
			l.wantAlone(l.Pod)
		})
	}
}
