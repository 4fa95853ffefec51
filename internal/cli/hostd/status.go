package hostd

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/hostd/status"
)

func newStatusCmd(opts *Options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the guests, NICs and segments of the running daemon",
		Args:  usage.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := status.Ask(cmd.Context(), opts.State)
			if err != nil {
				return err
			}
			if opts.JSON {
				return printStatusJSON(opts.Streams.Out, s)
			}
			return printStatus(opts.Streams.Out, s)
		},
	}
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "print JSON")
	return cmd
}

func printStatusJSON(out io.Writer, s status.Status) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(struct {
		SchemaVersion int `json:"schema_version"`
		status.Status
	}{status.SchemaVersion, s})
}

func printStatus(out io.Writer, s status.Status) error {
	if _, err := fmt.Fprintf(out, "unnest hostd %s (revision %s), protocol %d, on %s since %s\n",
		s.Version, s.Revision, s.Protocol, s.Listen, s.Since.Format(time.DateTime)); err != nil {
		return err
	}
	if err := printConfiguration(out, s.Configuration); err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nTENANT\tBRIDGE\tATTACHMENTS\tADDRESSES\tCOOLING")
	for _, t := range s.Tenants {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\n", t.Name, t.Bridge, t.Attachments, t.AddressesInUse, t.AddressesCooling)
	}
	fmt.Fprintln(w, "\nGUEST\tTENANT\tCERTIFICATE\tATTACHMENTS\tSLOTS FREE\tPOOL\tOTHER DEVICES\tQUARANTINED")
	for _, g := range s.Guests {
		if g.Error != "" {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", g.Name, g.Tenant, validity(g), g.Error)
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d of %d\t%d of %d\t%d\t%d\n",
			g.Name, g.Tenant, validity(g), g.Attachments, g.SlotsFree, g.Slots, g.Pool, g.PoolTarget, g.SlotsForeign, g.SlotsQuarantined)
	}
	fmt.Fprintln(w, "\nGUEST\tSLOT\tSTATE\tCONTAINER\tINTERFACE\tMAC\tAGE\tADDRESSES")
	for _, g := range s.Guests {
		for _, n := range g.NICs {
			slot := fmt.Sprint(n.Slot)
			if n.VLAN > 0 {
				slot = fmt.Sprintf("VLAN %d", n.VLAN)
			}
			state := n.State
			if n.Device != "" {
				state = "used by " + n.Device
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
				g.Name, slot, state, n.Container, n.Interface, n.MAC, age(n, time.Now()), strings.Join(n.Addresses, " "))
		}
		for _, share := range g.Shared {
			if share.Kept {
				fmt.Fprintf(w, "%s\t-\tkeeps %s %s\t%s\n", g.Name, share.Kind, share.Name, share.Pod)
			}
		}
	}
	printCertificates(w, s.Guests)
	printPolicies(w, s.Tenants)
	printSegments(w, s.Segments)
	printUnguarded(w, s.Unguarded)
	printProblems(w, s.Problems)
	return w.Flush()
}

// printConfiguration says what of the configuration file is not in use.
func printConfiguration(out io.Writer, c status.Configuration) (err error) {
	loaded := c.Loaded.Format(time.DateTime)
	if c.Error != "" {
		_, err = fmt.Fprintf(out, "configuration of %s; the file has changed since and is NOT in use: %s\n", loaded, c.Error)
	}
	if len(c.Restart) > 0 {
		_, printErr := fmt.Fprintf(out, "configuration of %s, except these keys, which take effect when the daemon starts again: %s\n", loaded, strings.Join(c.Restart, ", "))
		err = errors.Join(err, printErr)
	}
	return err
}

// validity says until when a guest's certificate is valid.
func validity(g status.Guest) string {
	expires := g.CertificateExpires
	revoked := func(c status.Certificate) bool { return c.State == "revoked" }
	switch date := expires.Format(time.DateOnly); {
	case expires.IsZero() && slices.ContainsFunc(g.Certificates, revoked):
		return "revoked"
	case expires.IsZero():
		return "-"
	case time.Now().After(expires):
		return "expired " + date
	default:
		return "until " + date
	}
}

// printCertificates prints the certificates of guests that have more than one.
func printCertificates(w *tabwriter.Writer, guests []status.Guest) {
	header := "\nGUEST\tCERTIFICATE\tEXPIRES\tSTATE\n"
	for _, g := range guests {
		if len(g.Certificates) < 2 {
			continue
		}
		for _, c := range g.Certificates {
			fmt.Fprintf(w, "%s%s\t%s\t%s\t%s\n", header, g.Name, cmp.Or(c.Serial, "-"), c.Expires.Format(time.DateOnly), c.State)
			header = ""
		}
	}
}

// age says for how long a pod has had a NIC, in the largest units.
func age(n status.NIC, now time.Time) string {
	if n.Since.IsZero() {
		return ""
	}
	switch d := now.Sub(n.Since); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(max(d, 0).Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
	}
}

// printPolicies prints what of the tenants' network policies is not in force, or will not be.
func printPolicies(w *tabwriter.Writer, tenants []status.Tenant) {
	header := "\nTENANT\tNETWORK POLICIES\n"
	for _, t := range tenants {
		p := t.Policies
		if p == nil {
			continue
		}
		for _, line := range []struct{ cause, text string }{
			{p.Unknown, "not known: no pod has connections until the policy client is back"},
			{p.Unkept, "in force, but not on disk: after a restart no pod has connections until the policy client is back"},
			{strings.Join(p.Refused, ", "), "too large: isolated pods of these namespaces have no connections; use fewer rules, peers or ports"},
		} {
			if line.cause != "" {
				fmt.Fprintf(w, "%s%s\t%s: %s\n", header, t.Name, line.text, line.cause)
				header = ""
			}
		}
	}
}

// printSegments prints the fractions of each segment, "1 node1, 2 node2 (not ready)", and
// the counts of frames.
func printSegments(w *tabwriter.Writer, segments []status.Segment) {
	if len(segments) == 0 {
		return
	}
	fmt.Fprintln(w, "\nTENANT\tPOD\tMODE\tTAP\tFRAMES\tDROPPED\tFRACTIONS")
	for _, s := range segments {
		var fractions []string
		for _, f := range s.Fractions {
			text := fmt.Sprintf("%d %s", f.Fraction, f.Guest)
			if !f.Member {
				text += " (not ready)"
			}
			if f.Silent {
				text += " (does not answer)"
			}
			fractions = append(fractions, text)
		}
		n := s.Total()
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%s\n", s.Tenant, s.Pod, s.Mode, s.TAP, n.Frames, n.Dropped(), strings.Join(fractions, ", "))
	}
}

// printProblems prints what cuts pods off that the daemon cannot repair.
func printProblems(w *tabwriter.Writer, problems []status.Problem) {
	for i, p := range problems {
		if i == 0 {
			fmt.Fprintln(w, "\nBRIDGE\tTENANT\tPROBLEM")
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", p.Bridge, p.Tenant, p.Cause)
	}
}

// printUnguarded prints the ports from which a guest may send anything.
func printUnguarded(w *tabwriter.Writer, ports []status.Port) {
	if len(ports) == 0 {
		return
	}
	fmt.Fprintln(w, "\nUNGUARDED PORT\tBRIDGE\tTENANT\tGUEST\tCAUSE")
	for _, p := range ports {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", p.Interface, p.Bridge, p.Tenant, cmp.Or(p.Guest, "-"), p.Cause)
	}
}
