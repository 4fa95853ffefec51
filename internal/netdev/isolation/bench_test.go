package isolation

import (
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sys/unix"
)

// Opening the filter of many isolated ports, as a daemon does that starts, in processor time: the
// kernel does its work within the calls.
func BenchmarkOpen(b *testing.B) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		b.Skip("needs root and network namespaces: set UNNEST_PRIVILEGED=1")
	}
	for _, count := range []int{500, 1000} {
		for families, addresses := range map[string][]netip.Prefix{"IPv4": link[:1], "both": link} {
			b.Run(fmt.Sprintf("%d/%s", count, families), func(b *testing.B) {
				var ports []Port
				for i := range count {
					d := allow(Rule{Peers: pod(7), Services: tcp(80, 90)})
					ports = append(ports, Port{Interface: fmt.Sprint("p", i), Link: addresses, Ingress: d, Egress: d})
				}
				var before, after unix.Rusage
				for b.Loop() {
					host, err := ns.TempNetNS()
					if err != nil {
						b.Fatal(err)
					}
					err = host.Do(func(ns.NetNS) error {
						if err := unix.Getrusage(unix.RUSAGE_SELF, &before); err != nil {
							return err
						}
						t, err := Open(ports)
						if err != nil {
							return err
						}
						if err := unix.Getrusage(unix.RUSAGE_SELF, &after); err != nil {
							return err
						}
						return t.Close()
					})
					if err != nil {
						b.Fatal(err)
					}
					host.Close()
				}
				time := func(r unix.Rusage) float64 {
					return float64(r.Utime.Sec+r.Stime.Sec) + float64(r.Utime.Usec+r.Stime.Usec)/1e6
				}
				b.ReportMetric(time(after)-time(before), "cpu-s") // of the last one
			})
		}
	}
}
