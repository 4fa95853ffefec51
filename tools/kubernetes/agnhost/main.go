// Command agnhost is the program of upstream's test containers with a few of its commands. The tests
// call connect hundreds of times, and an emulated processor takes most of a second to start the
// whole program. For all other commands, agnhost executes the whole program, /agnhost-whole.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/test/images/agnhost/connect"
	"k8s.io/kubernetes/test/images/agnhost/dns"
	"k8s.io/kubernetes/test/images/agnhost/netexec"
	"k8s.io/kubernetes/test/images/agnhost/pause"
	"k8s.io/kubernetes/test/images/agnhost/porter"
	servehostname "k8s.io/kubernetes/test/images/agnhost/serve-hostname"
)

const whole = "/agnhost-whole"

func main() {
	commands := []*cobra.Command{
		connect.CmdConnect, dns.CmdDNSSuffix, dns.CmdDNSServerList, dns.CmdEtcHosts, netexec.CmdNetexec, pause.CmdPause,
		porter.CmdPorter, servehostname.CmdServeHostname,
	}
	if len(os.Args) < 2 || !slices.ContainsFunc(commands, func(c *cobra.Command) bool { return c.Name() == os.Args[1] }) {
		err := syscall.Exec(whole, os.Args, os.Environ())
		fmt.Fprintf(os.Stderr, "agnhost: run %s: %v\n", whole, err)
		os.Exit(1)
	}
	root := &cobra.Command{Use: "app"}
	root.AddCommand(commands...)
	klog.InitFlags(nil) // some tests pass flags of the log
	root.PersistentFlags().AddGoFlagSet(flag.CommandLine)
	if root.Execute() != nil {
		os.Exit(1)
	}
}
