package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"kindred/app"
	"kindred/domain/id"
	"kindred/eventstore/seal/pgkeys"
	"kindred/httpapi/auth"
)

func (e environ) keysCommand() *cobra.Command {
	keys := &cobra.Command{Use: "keys", Short: "List and rotate the keys that sign tokens; rewrap what the master key protects; keep epoch keys"}
	var leaked, asJSON bool
	rotate := &cobra.Command{
		Use:   "rotate",
		Short: "Make new signing keys; they sign once every verifier has had the time to fetch them",
		Args:  cobra.NoArgs,
		RunE: e.with(func(ctx context.Context, f *app.App) error {
			keyring, err := f.Keyring(ctx)
			if err != nil {
				return err
			}
			rotate := keyring.Rotate
			if leaked {
				rotate = keyring.RotateNow
			}
			infos, err := rotate(ctx)
			if err != nil {
				return err
			}
			return printKeys(e.out, infos, false)
		}),
	}
	rotate.Flags().BoolVar(&leaked, "leaked", false, "the old keys have leaked: refuse what they signed from now on")
	list := &cobra.Command{
		Use:   "list",
		Short: "List the signing keys",
		Args:  cobra.NoArgs,
		RunE: e.with(func(ctx context.Context, f *app.App) error {
			keyring, err := f.Keyring(ctx)
			if err != nil {
				return err
			}
			infos, err := keyring.List(ctx)
			if err != nil {
				return err
			}
			return printKeys(e.out, infos, asJSON)
		}),
	}
	jsonFlag(list, &asJSON)
	rewrap := &cobra.Command{
		Use:   "rewrap",
		Short: "Wrap the clients' keys anew under the first master key, after it was changed",
		Args:  cobra.NoArgs,
		RunE: e.with(func(ctx context.Context, f *app.App) error {
			n, err := f.Vault.Rewrap(ctx)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(e.out, "%d keys are wrapped anew. The other master keys can be taken away, unless a process has one of them first.\n", n)
			return err
		}),
	}
	audit := &cobra.Command{
		Use:   "rotate-audit",
		Short: "Make a new key that signs heads of histories; the old ones stay published for ever",
		Args:  cobra.NoArgs,
		RunE: e.with(func(ctx context.Context, f *app.App) error {
			auditor, err := f.Auditor(ctx)
			if err != nil {
				return err
			}
			if err := auditor.Rotate(ctx); err != nil {
				return err
			}
			_, err = fmt.Fprintln(e.out, "A new key signs heads of histories from now on. The old ones stay published.")
			return err
		}),
	}
	keys.AddCommand(list, rotate, rewrap, audit, e.lookupsCommand(), e.snapshotCommand(), e.restoreCommand())
	return keys
}

func (e environ) lookupsCommand() *cobra.Command {
	var client string
	cmd := &cobra.Command{
		Use:   "lookups",
		Short: "Make anew from the log what finds users by their external ids",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.withClientOrAll(client, func(ctx context.Context, f *app.App, of id.Client) error {
				n, err := f.Log.MakeLookups(ctx, pgkeys.Keys{Pool: f.Pool}, of, true)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(e.out, "%d users were not found by their external ids, and are now.\n", n)
				return err
			})(cmd, args)
		},
	}
	cmd.Flags().StringVar(&client, "client", "", "of this client alone (default: of all)")
	return cmd
}

// listedKey is a signing key as `kindred keys list` tells of it.
type listedKey struct {
	ID          string     `json:"id"`
	Algorithm   string     `json:"algorithm"`
	State       string     `json:"state"`
	ActivatesAt time.Time  `json:"signs_from"`
	RemovedAt   *time.Time `json:"removed_at"`
}

func printKeys(out io.Writer, infos []auth.KeyInfo, asJSON bool) error {
	list := newListing(out, asJSON, "KEY", "ALGORITHM", "STATE", "SIGNS FROM", "REMOVED AT")
	for _, k := range infos {
		item, removed := listedKey{k.ID, k.Algorithm, string(k.State), k.ActivatesAt, nil}, "-"
		if !k.RemovedAt.IsZero() {
			item.RemovedAt, removed = &k.RemovedAt, k.RemovedAt.UTC().Format(time.RFC3339)
		}
		if err := list.add(item, k.ID, k.Algorithm, string(k.State), k.ActivatesAt.UTC().Format(time.RFC3339), removed); err != nil {
			return err
		}
	}
	return list.end()
}
