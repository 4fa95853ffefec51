// Package synthetic generates random users like those of a trace. The generator of clusters with
// nodes is in package kubernetes, because it writes objects of Kubernetes.
package synthetic

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"strconv"

	"unnest.io/unnest/internal/plan/cluster"
)

// Users describes random users like those of the Google trace of 2011. The zero value
// is as many users as ran at its beginning.
type Users struct {
	Seed uint64
	// Scale multiplies the 507 users. Zero: 1.
	Scale int
	// Mixed is the share of pods with several containers that differ in their requests.
	// Zero: 9 in 1616, as in the trace. Below zero: none.
	Mixed float64
	// Largest is the machine that requests are fractions of. Zero: 96 vCPU, 384 GiB.
	Largest cluster.Resources

	names []string // numbers as text, which all pods share
}

// The distributions at time 0 of clusterdata-2011-2, over its 507 users, 3,974 jobs and
// 132,980 tasks with requests.
var (
	shares         = [...]float64{0, .05, .1, .2, .3, .4, .5, .6, .7, .8, .9, .95, .98, .99, .995, .999, 1}
	podsOfUser     = quantiles{1, 1, 1, 1, 1, 2, 2, 3, 5, 7, 15, 28, 50, 63, 75, 257, 537}
	containersOf   = quantiles{1, 1, 1, 1, 1, 1, 1, 2, 3, 6, 30, 100, 300, 500, 992, 3824, 20010}
	cpuOfContainer = quantiles{1e-4, .003124, .006248, .006248, .0125, .01874, .03125, .04376, .0625, .0625,
		.125, .1318, .1875, .25, .3125, .4375, .5}
	memoryOfContainer = quantiles{1e-5, .001709, .003109, .003975, .007767, .01088, .0159, .02332, .0318,
		.05316, .08569, .1228, .1592, .2068, .2544, .6367, .9551}
)

const (
	users2011 = 507
	mixed2011 = 9.0 / 1616
	// correlation is that of the logarithms of CPU and memory over jobs.
	correlation = 0.56
)

// quantiles are the values at shares. Between them, logarithms are interpolated.
type quantiles [len(shares)]float64

func (q *quantiles) at(share float64) float64 {
	i := 1
	for i < len(shares)-1 && share > shares[i] {
		i++
	}
	f := (share - shares[i-1]) / (shares[i] - shares[i-1])
	return math.Exp(math.Log(q[i-1])*(1-f) + math.Log(q[i])*f)
}

// All yields one user after the other, and keeps none. A user depends on the seed and its
// number alone, so a larger scale begins with the users of a smaller one.
func (s Users) All() iter.Seq[cluster.User] {
	s.complete()
	return func(yield func(cluster.User) bool) {
		for i := range users2011 * s.Scale {
			if !yield(s.user(i)) {
				return
			}
		}
	}
}

func (s *Users) complete() {
	s.Scale = max(s.Scale, 1)
	s.Mixed = cmp.Or(s.Mixed, mixed2011)
	if s.Largest == (cluster.Resources{}) {
		s.Largest = cluster.Resources{CPU: 96 * cluster.VCPU, Memory: 384 << 30}
	}
	s.names = make([]string, int(containersOf[len(containersOf)-1])+1)
	for i := range s.names {
		s.names[i] = strconv.Itoa(i)
	}
}

func (s *Users) user(i int) cluster.User {
	random := rand.New(rand.NewPCG(s.Seed, uint64(i)))
	u := cluster.User{Name: fmt.Sprintf("user-%06d", i)}
	u.Pods = make([]cluster.Pod, count(random, &podsOfUser))
	for j := range u.Pods {
		u.Pods[j] = s.pod(random, j)
	}
	return u
}

func (s *Users) pod(random *rand.Rand, j int) cluster.Pod {
	p := cluster.Pod{Name: s.names[j], Containers: make([]cluster.Container, count(random, &containersOf))}
	request := s.request(random)
	mixed := random.Float64() < s.Mixed
	for k := range p.Containers {
		if mixed && k > 0 {
			request = s.request(random)
		}
		p.Containers[k] = cluster.Container{Name: s.names[k], Request: request}
	}
	return p
}

// count draws a whole number of at least 1.
func count(random *rand.Rand, q *quantiles) int { return int(math.Round(q.at(random.Float64()))) }

// request draws correlated CPU and memory, by a Gaussian copula.
func (s *Users) request(random *rand.Rand) cluster.Resources {
	a := random.NormFloat64()
	b := correlation*a + math.Sqrt(1-correlation*correlation)*random.NormFloat64()
	return cluster.Resources{
		CPU:    int64(cpuOfContainer.at(normal(a)) * float64(s.Largest.CPU)),
		Memory: int64(memoryOfContainer.at(normal(b)) * float64(s.Largest.Memory)),
	}
}

// normal is the distribution function of the standard normal distribution.
func normal(x float64) float64 { return math.Erfc(-x/math.Sqrt2) / 2 }
