package daemon

import (
	"context"
	"io"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/hostd/status"
)

// scrape returns the daemon's metrics.
func (l *lab) scrape() string {
	l.t.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", status.Socket(l.dir))
	}}}
	defer client.CloseIdleConnections()
	r, err := client.Get("http://hostd/metrics")
	l.check(err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	l.check(err)
	return string(text)
}

// nft runs the program nft in the lab's network namespace.
func (l *lab) nft(args ...string) (out string) {
	l.t.Helper()
	l.do(func() error {
		text, err := exec.Command("nft", args...).CombinedOutput()
		out = string(text)
		return err
	})
	return out
}

// The service nftables flushes all rules at its start. The daemon restores its own,
// and counts that. Package nft tests how soon.
func TestFiltersAreRestored(t *testing.T) {
	l := newLab(t)
	m := l.boot(1, 2)
	l.serve(patience)
	m.mustAttach("c1")
	varying := regexp.MustCompile(`0x[0-9a-f]{8}|packets \d+ bytes \d+`) // marks of transactions, counters
	rules := func() string {                                             // as sorted lines: the order of tables varies
		lines := strings.Split(varying.ReplaceAllString(l.nft("list", "ruleset"), ""), "\n")
		slices.Sort(lines)
		return strings.Join(lines, "\n")
	}
	want := rules()
	if !strings.Contains(want, `"u1n1-1"`) || !strings.Contains(want, "unnest-tenants") {
		t.Fatalf("rules before:\n%s", want)
	}
	for _, metric := range []string{"antispoof", "tenants"} {
		if line := `unnest_hostd_filter_restores_total{filter="` + metric + `",result="ok"} 0`; !strings.Contains(l.scrape(), line) {
			t.Errorf("the scrape has no line %s", line)
		}
	}
	l.nft("flush", "ruleset")
	begin := time.Now()
	for rules() != want {
		if time.Since(begin) > time.Minute {
			t.Fatalf("rules after a minute:\n%s\nwant\n%s", rules(), want)
		}
	}
	l.eventually("the restores are counted", func() bool {
		text := l.scrape()
		return strings.Contains(text, `filter="antispoof",result="ok"} 1`) && strings.Contains(text, `filter="tenants",result="ok"} 1`)
	})
	if err := m.detach("c2"); err != nil {
		t.Error(err)
	}
}
