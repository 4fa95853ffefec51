package hostd

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/spf13/cobra"

	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/hostd/credentials"
	"unnest.io/unnest/internal/hostd/record"
)

func newEnrollCmd(opts *Options) *cobra.Command {
	out := ""
	cmd := &cobra.Command{
		Use:   "enroll GUEST --out DIR",
		Short: "Issue the credentials of a guest",
		Long: `Issue a certificate that identifies a guest of the configuration, or a guest of
"unnest vm" whose lab has the state directory, and write it to a directory (ca.crt,
client.crt, client.key). Copy the files to /etc/unnest in the guest; only root may read
the key. Earlier certificates of the guest become invalid.

A guest renews its certificate itself. Enroll it when it is new, when its certificate has
expired, or after "unnest hostd revoke".`,
		Args: usage.Args("GUEST"),
		RunE: func(_ *cobra.Command, args []string) error {
			if out == "" {
				return usage.Errorf("missing flag --out: name the directory to write the credentials to")
			}
			p, err := opts.load()
			if err == nil || errors.Is(err, fs.ErrNotExist) { // guests of unnest vm need no configuration
				enrolled := credentials.Enroll(opts.State, p, args[0], out)
				if err == nil || !errors.Is(enrolled, record.ErrNoRecord) {
					err = enrolled
				}
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(opts.Streams.Err, "wrote the credentials of %s to %s: copy them to /etc/unnest in the guest\n", args[0], out)
			return nil
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "`directory` to write to")
	return cmd
}

func newRevokeCmd(opts *Options) *cobra.Command {
	serial := ""
	cmd := &cobra.Command{
		Use:   "revoke GUEST [--serial SERIAL]",
		Short: "Revoke the certificates of a guest",
		Long: `Revoke all certificates of a guest, or one of them. The daemon ends the guest's
connections at once and refuses its requests until the guest is enrolled again. The NICs
of its pods stay.`,
		Example: `  unnest hostd revoke node1
  unnest hostd revoke node1 --serial 5c17a90e`,
		Args: usage.Args("GUEST"),
		RunE: func(cmd *cobra.Command, args []string) error {
			revoked, err := credentials.Revoke(cmd.Context(), opts.State, args[0], serial)
			for _, c := range revoked {
				_, printErr := fmt.Fprintf(opts.Streams.Out, "revoked the certificate of %s with serial number %s, valid until %s\n",
					args[0], cmp.Or(c.Serial, "unknown"), c.Expires.Format(time.DateOnly))
				err = errors.Join(err, printErr)
			}
			if err == nil && len(revoked) == 0 {
				fmt.Fprintf(opts.Streams.Err, "%s has no valid certificate to revoke\n", args[0])
			}
			return err
		},
	}
	cmd.Flags().StringVar(&serial, "serial", "", "revoke the certificate with this `serial` number only, in hex as \"hostd status\" shows it")
	return cmd
}
