package report_test

import (
	"fmt"
	"math/rand/v2"
	"time"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/report/naming"
)

// started is when the synthetic run began.
var started = time.Date(2026, 3, 14, 9, 26, 53, 0, time.UTC)

// synthetic returns a run of two groups of cases in three networks whose values
// come from a fixed seed. NAT is slower by about half, BrFusion as fast as
// NoCont or slower by a few percent.
func synthetic(repetitions int) (result.Run, []result.Sample) {
	run := syntheticRun(repetitions)
	rng := rand.New(rand.NewPCG(7, 11))
	var samples []result.Sample
	for block := range repetitions {
		drift := 1 + 0.05*rng.Float64() // of the machine, shared by the block
		for _, c := range run.Cases {
			for _, conf := range run.Configurations {
				samples = append(samples, execution(rng, c, conf.Name, block, drift)...)
			}
		}
	}
	return run, samples
}

func syntheticRun(repetitions int) result.Run {
	run := result.Run{
		ID: "20260314-092653-brfusion", Experiment: "brfusion-quick", Title: "BrFusion against NAT and no container",
		Description: "What the network of a container in a guest costs, and what giving the pod a NIC of its own gives back.",
		File:        "name: brfusion-quick\nrepetitions: 6\nconfigurations: [NoCont, NAT, BrFusion]\n",
		State:       result.Complete, Started: started, Ended: started.Add(37 * time.Minute), Seed: 42,
		Repetitions: repetitions, Interleaved: true, Planned: repetitions * 3 * 7, Accelerator: "tcg", AccelReason: "/dev/kvm: no such file or directory",
		Host:   result.Machine{Name: "bench1", Kernel: "6.1.0-28-amd64", CPU: "AMD EPYC 7B13", VCPUs: 2, Memory: 8 << 30, Arch: "amd64"},
		Guests: []result.Machine{{Name: "node1", Kernel: "6.1.0-28-amd64", CPU: "QEMU TCG CPU version 2.5+", VCPUs: 2, Memory: 1 << 30, Arch: "amd64"}},
		Image:  "sha256:9f2c4d1e", Tools: map[string]string{"qemu": "7.2.15", "sockperf": "3.7", "iperf3": "3.12"},
		Revision: "4f3c2b1", Version: "0.1.0", Baselines: []string{"NoCont", "NAT"},
		Configurations: []result.Configuration{
			{Name: "NoCont", Stack: "vm", Description: "no container: the server runs in the guest"},
			{Name: "NAT", Stack: "vm/containerd", Options: map[string]string{"network": "nat"}, Description: "bridge and NAT in the guest"},
			{Name: "BrFusion", Stack: "vm/containerd", Options: map[string]string{"network": "brfusion"}, Description: "a NIC of its own, hot-plugged by the VMM"},
		},
	}
	latency := []result.Metric{{Name: "latency_mean", Unit: "us", Order: result.LIB}, {Name: "latency_p99", Unit: "us", Order: result.LIB}, {Name: "loss", Unit: "%", Order: result.LIB}}
	for _, p := range naming.CPUTimes[:7] { // of host and guest
		latency = append(latency, result.Metric{Name: p.Metric, Unit: "us/op", Order: result.LIB})
	}
	for _, size := range []int{64, 256, 1024, 1280} {
		run.Cases = append(run.Cases, result.Case{Suite: "network", Name: fmt.Sprintf("udp_rr/%d", size), Group: "udp_rr", Size: size,
			Title: fmt.Sprintf("UDP ping-pong, %d B", size), Tool: "sockperf", Primary: "latency_mean", Metrics: latency})
	}
	for _, size := range []int{64, 1280, 16384} {
		run.Cases = append(run.Cases, result.Case{Suite: "network", Name: fmt.Sprintf("tcp_stream/%d", size), Group: "tcp_stream", Size: size,
			Title: fmt.Sprintf("TCP stream, %d B", size), Tool: "iperf3", Primary: "throughput",
			Metrics: []result.Metric{{Name: "throughput", Unit: "Mbit/s", Order: result.HIB}, {Name: "retransmits", Unit: "1", Order: result.LIB}}})
	}
	return run
}

// startup is a run whose values spread: most starts take about as long in each
// network, one in twelve waits.
func startup(repetitions int) (result.Run, []result.Sample) {
	run := syntheticRun(repetitions)
	run.ID, run.Experiment, run.Title = "20260314-092653-startup", "startup", "From the order of a container to its first message"
	run.Description, run.Baselines, run.Planned = "Containers are started one after another.", []string{"NAT"}, 2*repetitions
	run.Configurations = run.Configurations[1:]
	run.Cases = []result.Case{{
		Suite: "startup", Name: "start", Group: "start", Title: "Start of a container", Tool: "nerdctl", Primary: "start",
		Metrics: []result.Metric{
			{Name: "start", Unit: "s", Order: result.LIB, Distribution: true},
			{Name: "add", Unit: "s", Order: result.LIB, Distribution: true},
		},
	}}
	rng := rand.New(rand.NewPCG(7, 11))
	var samples []result.Sample
	for block := range repetitions {
		for _, conf := range run.Configurations {
			add := map[string]float64{"NAT": 0.52, "BrFusion": 0.41}[conf.Name] * (1 + 0.08*rng.NormFloat64())
			wait := 0.0
			if rng.IntN(12) == 0 {
				wait = 0.8 * rng.Float64()
			}
			for i, value := range []float64{1.9 + add + wait, add} {
				metric := run.Cases[0].Metrics[i].Name
				samples = append(samples, result.Sample{
					Run: run.ID, Configuration: conf.Name, Suite: "startup", Case: "start", Metric: metric, Unit: "s", Order: result.LIB,
					Value: value, Block: block, Repetition: block, Boot: "boot", Start: started.Add(time.Duration(block) * time.Minute), Duration: 4,
				})
			}
		}
	}
	return run, samples
}

// cost is what a configuration multiplies the time of an operation by.
var cost = map[string]float64{"NoCont": 1, "NAT": 1.5, "BrFusion": 1.02}

// execution draws the samples of one execution of c.
func execution(rng *rand.Rand, c result.Case, configuration string, block int, drift float64) []result.Sample {
	start := started.Add(time.Duration(block) * 5 * time.Minute)
	var samples []result.Sample
	for _, m := range c.Metrics {
		samples = append(samples, result.Sample{
			Run: "20260314-092653-brfusion", Configuration: configuration, Suite: c.Suite, Case: c.Name, Metric: m.Name, Unit: m.Unit, Order: m.Order,
			Value: draw(rng, c, m, configuration) * drift, Block: block, Repetition: block,
			Boot: fmt.Sprintf("boot-%d", block/3), Start: start, Duration: 10,
		})
	}
	return samples
}

// draw returns a value of one metric before the drift of the machine.
func draw(rng *rand.Rand, c result.Case, m result.Metric, configuration string) float64 {
	noise := 1 + 0.02*rng.NormFloat64()
	latency := (170 + float64(c.Size)/80) * cost[configuration] * noise
	switch m.Name {
	case "latency_mean":
		return latency
	case "latency_p99":
		return 1.9 * latency
	case "throughput":
		return 90 * float64(c.Size) / (64 + float64(c.Size)/8) / cost[configuration] * noise
	case "loss":
		return 0
	case "retransmits":
		return float64(rng.IntN(3))
	case "guest_soft":
		return 20 * cost[configuration] * cost[configuration] * noise
	}
	share := map[string]float64{"host_usr": 12, "host_sys": 30, "host_soft": 9, "host_guest": 90, "guest_usr": 22, "guest_sys": 41}
	return share[m.Name] * cost[configuration] * noise
}
