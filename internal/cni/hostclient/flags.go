package hostclient

import (
	"flag"
	"fmt"
	"io"
	"net/netip"

	"unnest.io/unnest/internal/cni/netconf"
)

// Flags returns the flags -server and -credentials of a program that calls the host daemon. Its help, on stderr, begins with usage.
func Flags(program, usage string, stderr io.Writer, server *netip.AddrPort, credentials *string) *flag.FlagSet {
	flags := flag.NewFlagSet(program, flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, usage)
		flags.PrintDefaults()
	}
	flags.TextVar(server, "server", netip.MustParseAddrPort("10.200.0.1:7443"), "`ADDRESS:PORT` of the host daemon")
	flags.StringVar(credentials, "credentials", netconf.DefaultCredentials, "`DIRECTORY` of this guest's certificate")
	return flags
}
