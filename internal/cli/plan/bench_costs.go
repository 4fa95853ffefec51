package plan

import (
	"context"
	"fmt"
	"path/filepath"
	"text/tabwriter"
	"time"

	"unnest/internal/plan/catalogue"
	"unnest/internal/plan/cluster"
	"unnest/internal/plan/pack"
	"unnest/internal/plan/summary"
)

// costs compares the plans with those of the cluster autoscaler and of Karpenter.
func (b *benchmark) costs(ctx context.Context) error {
	file := filepath.Join(b.dir, "few.csv")
	n, err := writeGenerated(file, max(1, b.containers/8))
	if err != nil {
		return err
	}
	sources := []source{{"csv", []string{file}}}
	if b.google != "" {
		sources = append(sources, source{"google2011", []string{b.google}})
	}
	c, err := catalogue.Builtin("bacou")
	if err != nil {
		return err
	}
	b.printf("\nCosts compared with first-fit decreasing on one model for each user (ffd) and with Karpenter after its consolidation, $/h; csv is %d generated containers\n", n)
	tw := tabwriter.NewWriter(&b.text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "  users\toversize\tffd\tkarpenter\tkubernetes\thostlo\twhole\tbest\tbound\tffd took\tkarpenter took\tall plans took")
	for _, from := range sources {
		for _, oversize := range []pack.Oversize{pack.Drop, pack.Cut} {
			line, err := sideBySide(ctx, from, c, oversize)
			if err != nil {
				return err
			}
			fmt.Fprintln(tw, "  "+line)
		}
	}
	return tw.Flush()
}

// sideBySide plans each user by first-fit decreasing and as Karpenter, in turns, and then all users
// with all planners, on all processors.
func sideBySide(ctx context.Context, from source, c cluster.Catalogue, oversize pack.Oversize) (string, error) {
	s := setting{catalogue: c, plan: pack.Options{Oversize: oversize}, sources: []source{from}}
	input, err := s.read(ctx, nil)
	if err != nil {
		return "", err
	}
	var ffd, karpenter summary.Dollars
	var tookFFD, tookKarpenter time.Duration
	for u := range input.users {
		fit, _, err := pack.Fit(u, c, oversize)
		if err != nil {
			return "", err
		}
		begin := time.Now()
		ffd += summary.Dollars(pack.FirstFitDecreasing(fit, c))
		between := time.Now()
		for _, vm := range pack.Karpenter(fit, c).VMs {
			karpenter += summary.Dollars(c[vm.Model].Price)
		}
		tookFFD, tookKarpenter = tookFFD+between.Sub(begin), tookKarpenter+time.Since(between)
	}
	begin := time.Now()
	all, err := s.compare(ctx, input, nil)
	if err != nil {
		return "", err
	}
	users, _, _ := parts(all)
	r := summary.Sum(users, summary.Settings{}, nil, nil)
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.3f s\t%.3f s\t%.3f s", from.format, oversize, ffd, karpenter, r.Cost.Kubernetes, r.Cost.Hostlo,
		r.Cost.Whole, r.Cost.Best, r.Bound, tookFFD.Seconds(), tookKarpenter.Seconds(), time.Since(begin).Seconds()), nil
}
