// Package hostclient is the guest's client of the host daemon: gRPC over mutual TLS,
// a deadline for each method, and errors that say who refused.
//
// The CNI error code of a refusal belongs to package plugin.
package hostclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"unnest.io/unnest/internal/cni/netconf"
	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/identity"
)

// connectTime bounds the connection with its handshake: it is the time after which
// a host that is gone, or a stopped daemon, is noticed.
const connectTime = 8 * time.Second

// deadline is the time for one request. The daemon's own deadlines are shorter, so
// that its answer arrives.
func deadline(method string) time.Duration {
	switch method {
	case hostdpb.HostDaemon_Status_FullMethodName, hostdpb.HostDaemon_Renew_FullMethodName:
		return 10 * time.Second
	case hostdpb.HostDaemon_GC_FullMethodName, hostdpb.HostDaemon_CollectVolumes_FullMethodName:
		return 2 * time.Minute
	case hostdpb.HostDaemon_DetachNIC_FullMethodName, hostdpb.HostDaemon_LeaveSegment_FullMethodName,
		hostdpb.HostDaemon_DetachVolume_FullMethodName, hostdpb.HostDaemon_DetachSharedMemory_FullMethodName:
		return 55 * time.Second
	}
	return 30 * time.Second
}

// Client calls the host daemon. The errors of its requests are *Refusal.
type Client struct {
	hostdpb.HostDaemonClient
	Certificate *x509.Certificate // with which it calls
	conn        *grpc.ClientConn
}

// Dial prepares the connection to the server with the certificates in the directory
// dir. The first request connects.
func Dial(server netip.AddrPort, dir string) (Client, error) {
	config, err := identity.ClientConfig(dir)
	if err != nil {
		return Client{}, types.NewError(types.ErrInvalidNetworkConfig, err.Error(), "")
	}
	return dialWith(server, config)
}

func dialWith(server netip.AddrPort, config *tls.Config) (Client, error) {
	links, err := netlinksafe.LinkList()
	if err != nil {
		return Client{}, fmt.Errorf("list the NICs of this guest: %w", err)
	}
	often := backoff.DefaultConfig
	often.MaxDelay = time.Second // a daemon that restarts is away for seconds
	conn, err := grpc.NewClient(server.String(),
		grpc.WithTransportCredentials(credentials.NewTLS(config)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: often, MinConnectTimeout: connectTime}),
		grpc.WithNoProxy(), // the runtime's HTTPS_PROXY is for images
		grpc.WithUnaryInterceptor(requester{config.Certificates[0].Leaf, identity.MachineMetadata(machineMACs(links), bootID())}.request))
	if err != nil {
		return Client{}, fmt.Errorf("prepare connection to host daemon %s: %w", server, err)
	}
	return Client{HostDaemonClient: hostdpb.NewHostDaemonClient(conn), Certificate: config.Certificates[0].Leaf, conn: conn}, nil
}

// bootID returns that of this guest's kernel; "": unknown.
func bootID() string {
	content, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(content))
}

// machineMACs returns the addresses of the NICs of this machine, in lower case: those that they have by themselves, and those that somebody
// has given them. A link without a device is not one.
func machineMACs(links []netlink.Link) (macs []string) {
	for _, l := range links {
		a := l.Attrs()
		if a.ParentDev == "" {
			continue
		}
		for _, mac := range []net.HardwareAddr{a.PermHWAddr, a.HardwareAddr} {
			if text := mac.String(); len(mac) == 6 && !slices.Contains(macs, text) {
				macs = append(macs, text)
			}
		}
	}
	return macs
}

// requester makes requests with a certificate, from a machine.
type requester struct {
	certificate *x509.Certificate
	machine     metadata.MD
}

// request makes one request within its deadline.
func (q requester) request(ctx context.Context, method string, r, answer any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	ctx, cancel := context.WithTimeout(ctx, deadline(method))
	defer cancel()
	ctx = metadata.NewOutgoingContext(ctx, q.machine)
	var trailer metadata.MD // gRPC uses a connection before it says that it is ready
	if err := invoke(ctx, method, r, answer, conn, append(opts, grpc.Trailer(&trailer))...); err != nil {
		refusal := &Refusal{Status: status.Convert(err), Reached: len(trailer) > 0 || conn.GetState() == connectivity.Ready}
		if expired := q.expired(refusal); expired != nil {
			refusal.Status, refusal.Expired = status.New(codes.Unauthenticated, expired.Error()), true
		}
		return refusal
	}
	return nil
}

// expired returns an error if the connection has failed because the certificate has
// expired, by this clock or by the daemon's. gRPC itself may say "broken pipe" only: the
// daemon refuses the certificate after the client's part of the handshake.
func (q requester) expired(r *Refusal) error {
	if r.Reached || q.certificate == nil {
		return nil
	}
	if time.Now().After(q.certificate.NotAfter) || strings.Contains(r.Status.Message(), "tls: expired certificate") {
		return identity.Expired(q.certificate)
	}
	return nil
}

// Close ends the connection.
func (c Client) Close() { _ = c.conn.Close() }

// Refusal is the host daemon's error, or the client's when the daemon did not answer.
type Refusal struct {
	Status  *status.Status
	Reached bool // the daemon itself sent the status
	Expired bool // the client's certificate has expired
}

func (r *Refusal) Error() string {
	fix := ""
	switch text := r.Status.Message(); {
	case r.Reached || r.Expired:
	case strings.Contains(text, "x509: certificate has expired or is not yet valid"): // package crypto/x509 then names both times
		fix = "; the clock of this guest differs from the host's: set it"
	default:
		fix = "; check that unnest hostd runs on the host and listens at the configured server address"
	}
	return fmt.Sprintf("host daemon: %s (%s)%s", r.Status.Message(), r.Status.Code(), fix)
}

// Unanswered reports whether err means that the daemon did not answer, or cannot
// reach the guest's VMM. The request may be repeated later.
func Unanswered(err error) bool {
	r := (*Refusal)(nil)
	return errors.As(err, &r) && (!r.Reached || r.Status.Code() == codes.Unavailable)
}

// Untrusted reports whether a certificate is why the daemon did not answer: that of the client has expired, or one of the two does not
// believe the other's. Time alone does not change that.
func Untrusted(err error) bool {
	r := (*Refusal)(nil)
	return errors.As(err, &r) && !r.Reached && (r.Expired || strings.Contains(r.Status.Message(), "x509: ") || strings.Contains(r.Status.Message(), "tls: "))
}

// Authenticated reports whether the daemon has accepted the client's certificate, although
// the request may have failed.
func Authenticated(err error) bool {
	r := (*Refusal)(nil)
	return err == nil || errors.As(err, &r) && r.Reached && r.Status.Code() != codes.Unauthenticated
}

// Unknown reports whether the daemon is too old to know the method.
func Unknown(err error) bool {
	r := (*Refusal)(nil)
	return errors.As(err, &r) && r.Status.Code() == codes.Unimplemented
}

// Flags returns the flags -server and -credentials of a program that calls the host daemon.
func Flags(program string, server *netip.AddrPort, credentials *string) *flag.FlagSet {
	flags := flag.NewFlagSet(program, flag.ContinueOnError)
	flags.TextVar(server, "server", netip.MustParseAddrPort("10.200.0.1:7443"), "`ADDRESS:PORT` of the host daemon")
	flags.StringVar(credentials, "credentials", netconf.DefaultCredentials, "`DIRECTORY` of this guest's certificate")
	return flags
}

// Parse parses the flags of a program, whose name is that of flags, and at most so many other arguments. If it ends, this is its exit code:
// 0 after --help, with which stdout gets usage and the flags; 2 after a wrong argument, of which stderr gets a line.
func Parse(flags *flag.FlagSet, args []string, most int, usage string, stdout, stderr io.Writer) (code int, ends bool) {
	flags.SetOutput(io.Discard)
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		flags.SetOutput(stdout)
		_, _ = io.WriteString(stdout, usage) // PrintDefaults reports no error of writing either
		flags.PrintDefaults()
		return 0, true
	}
	if err == nil && flags.NArg() > most {
		err = fmt.Errorf("unexpected argument %q", flags.Arg(most))
	}
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v; --help shows the usage\n", flags.Name(), err)
		return 2, true
	}
	return 0, false
}
