package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"kindred/domain/id"
	"kindred/eventstore"
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

The documentation is at %[1]s/docs. Ctrl-C stops everything.
`, c.PublicURL)
}

// with runs a tool on the foundation of the service, where one was served before.
func (e environ) with(work func(context.Context, *foundation) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		config, err := readConfig(e.getenv)
		if err == nil {
			err = config.served(cmd.Context())
		}
		if err != nil {
			return err
		}
		return e.anywhere(work)(cmd, args)
	}
}

// served refuses a place where nothing was ever served: a tool would make a new
// kindred there.
func (c Config) served(ctx context.Context) error {
	if c.DatabaseURL == "" {
		there, err := postgres.LocalExists(c.DataDir)
		if err == nil && !there {
			err = fmt.Errorf("nothing was ever served from %s: there is no database under it. "+
				"Set KINDRED_DATA_DIR or KINDRED_DATABASE_URL to where the service keeps its data", c.DataDir)
		}
		return err
	}
	there, err := postgres.Migrated(ctx, c.DatabaseURL)
	if err == nil && !there {
		err = errors.New("nothing was ever served from the database that KINDRED_DATABASE_URL names: it holds no kindred")
	}
	return err
}

// anywhere runs a tool on the foundation of the service, which it makes where
// there is none.
func (e environ) anywhere(work func(context.Context, *foundation) error) func(*cobra.Command, []string) error {
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

// withClient runs a tool on a client, and refuses one that there never was.
func (e environ) withClient(client string, work func(context.Context, *foundation, id.Client) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		of, err := id.Parse[id.Client](client)
		if err != nil {
			return err
		}
		return e.with(func(ctx context.Context, f *foundation) error {
			known, err := f.knows(ctx, of)
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

// required adds a flag that a command cannot do without.
func required(cmd *cobra.Command, into *string, name, usage string) {
	cmd.Flags().StringVar(into, name, "", usage)
	if err := cmd.MarkFlagRequired(name); err != nil {
		panic(err) // the flag is made a line above
	}
}

// knows says whether there is a client, be it that the log has lost its stream.
func (f *foundation) knows(ctx context.Context, client id.Client) (bool, error) {
	tip, err := f.log.Version(ctx, eventstore.ClientStream(client))
	if err != nil || tip.Revision != eventstore.NoStream {
		return err == nil, err
	}
	tree, err := projections.History{Reader: f.reader()}.Tree(ctx, client, true)
	return tree.Size > 0, err
}

func (e environ) migrateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database to the schema of this release",
		Args:  cobra.NoArgs,
		RunE: e.anywhere(func(context.Context, *foundation) error { // to found is to migrate
			_, err := fmt.Fprintln(e.out, "The database has the schema", postgres.Fingerprint())
			return err
		}),
	}
}
