package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"unnest.io/unnest/internal/measure/cputime"
	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/workload"
)

// Renew makes pods that are gone again, and replaces all servers, see experiment.Renewer. A pod that
// cannot be made fails the executions of this block that need it.
func (b *Set) Renew(ctx context.Context, _ experiment.Execution) error {
	pods, err := b.list(ctx)
	if err != nil {
		return err
	}
	clear(b.broken)
	for _, r := range rolesOf(b.spec) {
		name := b.plan.names[r]
		if p := pods[name]; p != nil && gone(p) == nil {
			continue
		}
		if err := b.again(ctx, r); err != nil {
			b.broken[name] = err
		}
	}
	_ = b.startServers(ctx) // in broken
	return ctx.Err()
}

// again makes a pod in the place of one that is gone.
func (b *Set) again(ctx context.Context, r role) error {
	name := b.plan.names[r]
	pods := b.cluster.pods
	if err := pods.delete(ctx, b.plan.namespace, name); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete pod %s: %w", name, err)
	}
	limit, cancel := context.WithTimeout(ctx, b.options.Wait)
	defer cancel()
	for {
		if err := pods.get(limit, b.plan.namespace, name, &corev1.Pod{}); apierrors.IsNotFound(err) {
			return b.makePods(ctx, []role{r})
		}
		if err := pause(limit); err != nil {
			return fmt.Errorf("delete pod %s: %w", name, err)
		}
	}
}

// startServers starts or restarts all servers. The errors of those that do not start are in broken,
// too.
func (b *Set) startServers(ctx context.Context) error {
	old := map[string]*server{}
	for r, name := range b.plan.names {
		if r.side == serverSide && b.broken[name] == nil {
			old[name] = b.servers[name]
		}
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var errs error
	for name, before := range old {
		all.Go(func() {
			s, err := b.restart(ctx, name, before)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				delete(b.servers, name)
				b.broken[name], errs = err, errors.Join(errs, err)
				return
			}
			b.servers[name] = s
		})
	}
	all.Wait()
	return errs
}

// restart stops a server, if there is one, and starts it again.
func (b *Set) restart(ctx context.Context, pod string, old *server) (*server, error) {
	if old != nil {
		if err := old.stop(ctx); err != nil {
			return nil, err
		}
	}
	w, err := workload.Lookup(b.spec.Cases[0].Tool) // all have the same server
	if err != nil {
		return nil, err
	}
	command := append(w.Server(b.spec.Cases[0].Params, workload.Endpoint{Port: port}), workload.AttachedFlag)
	return b.startServer(ctx, pod, command, w.Ready())
}

// Execute runs the client of a case once, see experiment.Bench.
func (b *Set) Execute(ctx context.Context, x experiment.Execution) (experiment.Outcome, error) {
	network := networkOf(x.Configuration)
	from := b.plan.names[role{network, clientSide, x.Case.Pair.Client}]
	to := b.plan.names[role{network, serverSide, x.Case.Pair.Server}]
	for _, name := range []string{from, to} {
		if err := b.broken[name]; err != nil {
			return experiment.Outcome{}, err
		}
	}
	outcome, err := b.load(ctx, x, from, to)
	if err != nil && ctx.Err() == nil {
		err = b.explain(ctx, err, from, to)
	}
	return outcome, err
}

func (b *Set) load(ctx context.Context, x experiment.Execution, from, to string) (o experiment.Outcome, _ error) {
	if s := b.servers[to]; s == nil || !s.running() {
		s, err := b.restart(ctx, to, s)
		if err != nil {
			return o, err
		}
		b.servers[to] = s
	}
	target := workload.Endpoint{Address: b.addresses[to], Port: port}
	if x.Configuration.Network == stack.Service {
		target.Address = b.services[to]
	}
	w, err := workload.Lookup(x.Case.Tool)
	if err != nil {
		return o, err
	}
	printed, failed := b.output(ctx, from, w.Client(x.Case.Params, target)...)
	out, err := w.Parse(x.Case.Params, printed)
	if failed != nil && (err == nil || len(printed) == 0) {
		err = failed
	}
	if err != nil {
		return o, err
	}
	spent, boot, err := nodeTimes(printed, out.Operations)
	return experiment.Outcome{Values: append(out.Values, spent...), Boot: boot}, err
}

// nodeTimes returns the CPU time of both nodes, or of one if they are the same, and the boot of the
// server's.
func nodeTimes(printed []byte, operations float64) ([]workload.Value, string, error) {
	var report workload.LoadReport
	if err := json.Unmarshal(printed, &report); err != nil {
		return nil, "", err
	}
	if len(report.Before) != 2 || len(report.After) != 2 {
		return nil, "", fmt.Errorf("the client reports %d and %d readings of CPU time, want 2 and 2", len(report.Before), len(report.After))
	}
	var spent cputime.Breakdown
	for i, before := range report.Before {
		if i > 0 && before.Boot == report.Before[0].Boot {
			continue
		}
		one, err := between(before, report.After[i])
		if err != nil {
			return nil, "", fmt.Errorf("CPU time of a node: %w", err)
		}
		spent = cputime.Breakdown{Usr: spent.Usr + one.Usr, Sys: spent.Sys + one.Sys, Soft: spent.Soft + one.Soft, Guest: spent.Guest + one.Guest}
	}
	values, err := cputime.NodeValues(spent, operations)
	return values, report.Before[1].Boot, err
}

func between(before, after workload.MachineReading) (cputime.Breakdown, error) {
	if before.Boot != after.Boot {
		return cputime.Breakdown{}, errors.New("the node was booted meanwhile")
	}
	first, err := cputime.Parse([]byte(before.Stat + "\n"))
	if err != nil {
		return cputime.Breakdown{}, err
	}
	last, err := cputime.Parse([]byte(after.Stat + "\n"))
	if err != nil {
		return cputime.Breakdown{}, err
	}
	spent, err := last.Sub(first)
	return spent.Breakdown(), err
}

// explain adds to an error that a pod is gone, if one is, and why.
func (b *Set) explain(ctx context.Context, err error, names ...string) error {
	for _, name := range names {
		p := &corev1.Pod{}
		getErr := b.cluster.pods.get(ctx, b.plan.namespace, name, p)
		switch {
		case apierrors.IsNotFound(getErr):
			b.broken[name] = fmt.Errorf("pod %s is gone: it was evicted, or deleted by somebody else", name)
		case getErr == nil:
			b.broken[name] = gone(p)
		}
		if b.broken[name] != nil {
			return fmt.Errorf("%w; %w", b.broken[name], err)
		}
	}
	return err
}
