package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"kindred/app"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/postgres"
	"kindred/projections"
)

// greet prints what to type next.
func greet(out io.Writer, c app.Config) {
	fmt.Fprintf(out, `
kindred serves on %[1]s. In a browser, %[1]s/console/ leads from a sign-up on. Or, in another terminal:

  bin/kindred demo --url %[1]s
  curl -s %[1]s/auth/signup -H 'Content-Type: application/json' -d '{"email":"ada@example.com","password":"correct horse battery","company_name":"Acme"}'
  curl -s %[1]s/.well-known/jwks.json

The documentation is at %[1]s/docs. Ctrl-C stops everything.
`, c.PublicURL)
}

// with runs a tool on the foundation of the service, where one was served before.
func (e environ) with(work func(context.Context, *app.App) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		config, err := app.ReadConfig(e.getenv)
		if err == nil {
			err = config.Served(cmd.Context())
		}
		if err != nil {
			return err
		}
		return e.anywhere(work)(cmd, args)
	}
}

// anywhere runs a tool on the foundation of the service, which it makes where
// there is none.
func (e environ) anywhere(work func(context.Context, *app.App) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		config, err := app.ReadConfig(e.getenv)
		if err != nil {
			return err
		}
		f, err := app.Open(cmd.Context(), config, e.logger)
		if err != nil {
			return err
		}
		defer f.Close()
		return work(cmd.Context(), f)
	}
}

// withClient runs a tool on a client, and refuses one that there never was.
func (e environ) withClient(client string, work func(context.Context, *app.App, id.Client) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		of, err := id.Parse[id.Client](client)
		if err != nil {
			return err
		}
		return e.with(func(ctx context.Context, f *app.App) error {
			known, err := knows(ctx, f, of)
			if err == nil && !known {
				err = fmt.Errorf("there is no client %s", of)
			}
			if err != nil {
				return err
			}
			return work(ctx, f, of)
		})(cmd, args)
	}
}

// withClientOrAll runs a tool on a client, or, where none is named, on all of them, as on the
// client "".
func (e environ) withClientOrAll(client string, work func(context.Context, *app.App, id.Client) error) func(*cobra.Command, []string) error {
	if client != "" {
		return e.withClient(client, work)
	}
	return e.with(func(ctx context.Context, f *app.App) error { return work(ctx, f, "") })
}

// required adds a flag that a command cannot do without.
func required(cmd *cobra.Command, into *string, name, usage string) {
	cmd.Flags().StringVar(into, name, "", usage)
	if err := cmd.MarkFlagRequired(name); err != nil {
		panic(err) // the flag is made a line above
	}
}

// knows says whether there is a client, be it that the log has lost its stream.
func knows(ctx context.Context, f *app.App, client id.Client) (bool, error) {
	end, err := f.Log.Version(ctx, eventstore.ClientStream(client))
	if err != nil || end.Revision != eventstore.NoStream {
		return err == nil, err
	}
	tree, err := projections.History{Reader: f.Reader()}.Tree(ctx, client, true)
	return tree.Size > 0, err
}

func (e environ) migrateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database to the schema of this release",
		Args:  cobra.NoArgs,
		RunE: e.anywhere(func(context.Context, *app.App) error { // to found is to migrate
			_, err := fmt.Fprintln(e.out, "The database has the schema", postgres.Fingerprint())
			return err
		}),
	}
}
