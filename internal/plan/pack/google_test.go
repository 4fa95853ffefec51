package pack

import (
	"compress/gzip"
	"encoding/csv"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"unnest.io/unnest/internal/plan/cluster"
)

// googleUsers reads who has tasks at time 0 from the first part of Google's trace of
// 2011, in the directory that UNNEST_GOOGLE2011 names: job is pod, task is container,
// requests are fractions of a 24xlarge, as in the paper.
func googleUsers(t *testing.T) []cluster.User {
	t.Helper()
	dir := os.Getenv("UNNEST_GOOGLE2011")
	if dir == "" {
		t.Skip("UNNEST_GOOGLE2011 names no directory with Google's trace of 2011")
	}
	file, err := os.Open(filepath.Join(dir, "task_events", "part-00000-of-00500.csv.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	plain, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	index := map[string]int{} // user, and user and job
	var users []cluster.User
	r := csv.NewReader(plain)
	r.ReuseRecord = true
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) || err == nil && row[0] != "0" {
			return users
		}
		if err != nil {
			t.Fatal(err)
		}
		if row[5] != "1" { // SCHEDULE
			continue
		}
		name, job := strings.Clone(row[6]), strings.Clone(row[2])
		u, known := index[name]
		if !known {
			u = len(users)
			index[name], users = u, append(users, cluster.User{Name: name})
		}
		p, known := index[name+" "+job]
		if !known {
			p = len(users[u].Pods)
			index[name+" "+job], users[u].Pods = p, append(users[u].Pods, cluster.Pod{Name: job})
		}
		pod := &users[u].Pods[p]
		pod.Containers = append(pod.Containers, cluster.Container{Name: strings.Clone(row[3]), Request: cluster.Resources{
			CPU: fraction(t, row[9], 96*cluster.VCPU), Memory: fraction(t, row[10], 384<<30),
		}})
	}
}

func fraction(t *testing.T, text string, whole int64) int64 {
	if text == "" {
		return 0
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return int64(math.Round(x * float64(whole)))
}

// The cost study of the paper, §5.3.1, on the piece of its trace: 492 users, as
// there. Costs are thousandths of a dollar for an hour; saving counts users.
func TestGoogle2011Trace(t *testing.T) {
	users := googleUsers(t)
	tests := []struct {
		name               string
		opts               Options
		users              int
		kubernetes, hostlo int64
		saving, above5     int
		most               float64 // relative saving
	}{
		{"dropped", Options{}, 492, 2194976, 2150288, 32, 20, 0.417},
		{"cut", Options{Oversize: Cut}, 507, 48687184, 46085648, 67, 31, 0.417},
		{"apart", Options{Oversize: Apart}, 507, 56154448, 55408192, 58, 23, 0.417},
	}
	c := mustBuiltin(t, "bacou")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var kubernetes, hostlo int64
			var planned, saving, above5 int
			var most float64
			for _, u := range users {
				fit, _, err := Fit(u, c, tt.opts.Oversize)
				if err != nil {
					t.Fatal(err)
				}
				k, err := Kubernetes(fit, c, tt.opts)
				if err != nil {
					t.Fatal(err)
				}
				h, err := Hostlo(fit, c, k.Plan, tt.opts)
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(Check(fit, c, k.Plan, tt.opts), Check(fit, c, h.Plan, tt.opts), CheckImproved(c, k, h)); err != nil {
					t.Errorf("user %s: %v", u.Name, err)
				}
				kubernetes, hostlo = kubernetes+k.Cost, hostlo+h.Cost
				planned += btoi(len(fit.Pods) > 0)
				if k.Cost == 0 {
					continue
				}
				saved := float64(k.Cost-h.Cost) / float64(k.Cost)
				saving, above5, most = saving+btoi(saved > 0), above5+btoi(saved > 0.05), max(most, saved)
			}
			const item = cluster.Dollar / 1000
			if planned != tt.users || kubernetes/item != tt.kubernetes || hostlo/item != tt.hostlo || saving != tt.saving || above5 != tt.above5 || math.Abs(most-tt.most) > 5e-4 {
				t.Errorf("%d users, kubernetes %d, hostlo %d, %d save, %d above 5 %%, at most %.4f; want %+v",
					planned, kubernetes/item, hostlo/item, saving, above5, most, tt)
			}
		})
	}
}
