package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"kindred/eventstore/feed"
	"kindred/httpapi/auth"
	"kindred/postgres"
	"kindred/projections"
)

// greet prints what to type next.
func greet(out io.Writer, c Config) {
	fmt.Fprintf(out, `
kindred serves on %[1]s. Try, in another terminal:

  bin/kindred demo --url %[1]s
  curl -s %[1]s/auth/signup -H 'Content-Type: application/json' -d '{"email":"ada@example.com","password":"correct horse battery","company_name":"Acme"}'
  curl -s %[1]s/.well-known/jwks.json

The API reference is at %[1]s/docs. Ctrl-C stops everything.
`, c.PublicURL)
}

// with runs a tool on the foundation of the service.
func (e environ) with(work func(context.Context, *foundation) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		config, err := readConfig(e.getenv)
		if err != nil {
			return err
		}
		f, err := found(cmd.Context(), config, e.logger, true)
		if err != nil {
			return err
		}
		defer f.close()
		return work(cmd.Context(), f)
	}
}

func (e environ) migrateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database to the schema of this release",
		Args:  cobra.NoArgs,
		RunE: e.with(func(context.Context, *foundation) error { // to found is to migrate
			_, err := fmt.Fprintln(e.out, "The database has the schema", postgres.Fingerprint())
			return err
		}),
	}
}

func (e environ) keysCommand() *cobra.Command {
	keys := &cobra.Command{Use: "keys", Short: "List and rotate the keys that sign tokens; rewrap what the master key protects"}
	var leaked bool
	rotate := &cobra.Command{
		Use:   "rotate",
		Short: "Make new signing keys; they sign once every verifier has had the time to fetch them",
		Args:  cobra.NoArgs,
		RunE: e.with(func(ctx context.Context, f *foundation) error {
			keyring, err := f.keyring(ctx)
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
			return printKeys(e.out, infos)
		}),
	}
	rotate.Flags().BoolVar(&leaked, "leaked", false, "the old keys have leaked: refuse what they signed from now on")
	list := &cobra.Command{
		Use:   "list",
		Short: "List the signing keys",
		Args:  cobra.NoArgs,
		RunE: e.with(func(ctx context.Context, f *foundation) error {
			keyring, err := f.keyring(ctx)
			if err != nil {
				return err
			}
			infos, err := keyring.List(ctx)
			if err != nil {
				return err
			}
			return printKeys(e.out, infos)
		}),
	}
	rewrap := &cobra.Command{
		Use:   "rewrap",
		Short: "Wrap the clients' keys anew under the first master key, after it was changed",
		Args:  cobra.NoArgs,
		RunE: e.with(func(ctx context.Context, f *foundation) error {
			n, err := f.vault.Rewrap(ctx)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(e.out, "%d keys are wrapped anew. The older master keys can be taken away once the signing keys have been rotated.\n", n)
			return err
		}),
	}
	keys.AddCommand(list, rotate, rewrap)
	return keys
}

func printKeys(out io.Writer, infos []auth.KeyInfo) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "KEY\tALGORITHM\tSTATE\tSIGNS FROM\tREMOVED AT")
	for _, k := range infos {
		removed := "-"
		if !k.RemovedAt.IsZero() {
			removed = k.RemovedAt.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", k.ID, k.Algorithm, k.State, k.ActivatesAt.UTC().Format(time.RFC3339), removed)
	}
	return table.Flush()
}

func (e environ) projectionsCommand() *cobra.Command {
	group := &cobra.Command{Use: "projections", Short: "List and rebuild the read models"}
	list := &cobra.Command{
		Use:   "list",
		Short: "Show how far each projection and policy has come",
		Args:  cobra.NoArgs,
		RunE: e.with(func(ctx context.Context, f *foundation) error {
			statuses, err := feed.List(ctx, f.pool)
			if err != nil {
				return err
			}
			return printStatuses(e.out, statuses)
		}),
	}
	var models []string
	rebuild := &cobra.Command{
		Use:       "rebuild NAME…",
		Short:     "Build read models anew beside the live ones, and put them in their place",
		ValidArgs: modelNames(),
		Args:      cobra.MatchAll(cobra.MinimumNArgs(1), cobra.OnlyValidArgs),
		PreRun:    func(_ *cobra.Command, args []string) { models = args },
		RunE: e.with(func(ctx context.Context, f *foundation) error {
			for _, model := range projections.All() {
				if !slices.Contains(models, model.Name()) {
					continue
				}
				if err := f.runner.Rebuild(ctx, model, nil); err != nil {
					return fmt.Errorf("rebuild %s: %w", model.Name(), err)
				}
				fmt.Fprintln(e.out, "rebuilt", model.Name())
			}
			return nil
		}),
	}
	group.AddCommand(list, rebuild)
	return group
}

func modelNames() []string {
	var names []string
	for _, m := range projections.All() {
		names = append(names, m.Name())
	}
	return names
}

func printStatuses(out io.Writer, statuses []feed.Status) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tPOSITION\tEVENTS\tUPDATED\tLEADER\tQUARANTINED")
	for _, s := range statuses {
		fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%s\t%d\n",
			s.Name, s.Position, s.Events, s.UpdatedAt.UTC().Format(time.RFC3339), s.Leader, len(s.Quarantined))
		for _, q := range s.Quarantined {
			fmt.Fprintf(table, "  %s\t%s\t\t%s\t\t%s\n", q.Client, q.Position, q.At.UTC().Format(time.RFC3339), q.Reason)
		}
	}
	return table.Flush()
}
