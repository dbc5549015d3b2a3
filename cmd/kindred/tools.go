package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"kindred/postgres"
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
