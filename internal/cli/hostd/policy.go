package hostd

import (
	"fmt"

	"github.com/spf13/cobra"

	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/hostd/credentials"
)

func newPolicyCmd(opts *Options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Let a client choose the connections of a tenant's pods",
	}
	cmd.AddCommand(newPolicyEnrollCmd(opts), newPolicyRevokeCmd(opts), newPolicyRunCmd(opts))
	return cmd
}

func newPolicyEnrollCmd(opts *Options) *cobra.Command {
	out := ""
	cmd := &cobra.Command{
		Use:   "enroll TENANT --output DIR",
		Short: "Issue the credentials of a tenant's policy client",
		Long: `Issue a certificate whose holder may choose which connections the pods of a tenant have,
and write it to a directory (ca.crt, client.crt, client.key). Keep it out of the guests.
A tenant has one policy client: earlier certificates become invalid, and a client that has
one ends when the new one begins. The certificate is valid for a year.`,
		Example: `  unnest hostd policy enroll default --output /etc/unnest/policy`,
		Args:    usage.Args("TENANT"),
		RunE: func(_ *cobra.Command, args []string) error {
			if out == "" {
				return usage.Errorf("missing flag --output: name the directory to write the credentials to")
			}
			p, err := opts.load()
			if err != nil {
				return err
			}
			if err := credentials.EnrollPolicy(opts.State, p, args[0], out); err != nil {
				return err
			}
			fmt.Fprintf(opts.Streams.Err, "wrote the credentials of the policy client of %s to %s\n", args[0], out)
			return nil
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "write to the directory `DIR`")
	return cmd
}

func newPolicyRevokeCmd(opts *Options) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke TENANT",
		Short: "Revoke the certificate of a tenant's policy client",
		Long: `Revoke the certificate of a tenant's policy client. The daemon ends its connections at
once. The policies that are in force stay.`,
		Args: usage.Args("TENANT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return credentials.RevokePolicy(cmd.Context(), opts.State, args[0])
		},
	}
}
