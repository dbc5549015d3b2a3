package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"kindred/app"
	client "kindred/cli"
	"kindred/domain/id"
	"kindred/projections"
)

// limit: tools | clients of one statement | {clientsAtOnce}
const clientsAtOnce = 1000

// listedClient is a client as `kindred clients` tells of it.
type listedClient struct {
	ID        id.Client `json:"id"`
	Slug      string    `json:"slug"`
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"created_at"`
}

func (e environ) clientsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "clients",
		Short:   "List the clients, whose ids other tools ask for",
		Example: "  kindred clients\n  kindred clients --json",
		Args:    cobra.NoArgs,
		RunE: e.with(func(ctx context.Context, f *app.App) error {
			list := newListing(e.out, asJSON, "ID", "SLUG", "NAME", "CREATED")
			model := projections.Clients{Reader: f.Reader()}
			for after := id.Client(""); ; {
				page, err := model.All(ctx, after, clientsAtOnce)
				if err != nil {
					return err
				}
				for _, c := range page {
					after = c.ID
					if err := list.add(listedClient{c.ID, c.Slug, c.Name, c.CreatedAt},
						string(c.ID), c.Slug, client.Printable(c.Name), c.CreatedAt.UTC().Format(time.RFC3339)); err != nil {
						return err
					}
				}
				if len(page) < clientsAtOnce {
					return list.end()
				}
			}
		}),
	}
	jsonFlag(cmd, &asJSON)
	cmd.AddCommand(e.deleteClientCommand())
	return cmd
}

func (e environ) deleteClientCommand() *cobra.Command {
	var slug string
	cmd := &cobra.Command{
		Use:   "delete CLIENT --slug SLUG",
		Short: "Delete a client, its sandboxes and all in them, for good",
		Long: "Delete a client, its sandboxes and all in them, for good: nobody logs in to it any more, and the keys of everything\n" +
			"in it are destroyed. Its slug is asked for, so that a wrong id deletes nobody. Broken off, it goes on when it is run\n" +
			"again, or by itself where kindred serves.",
		Example: "  kindred clients delete cli_… --slug acme",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.withClient(args[0], func(ctx context.Context, f *app.App, of id.Client) error {
				if err := f.EndClient(ctx, of, slug); err != nil {
					return err
				}
				_, err := fmt.Fprintf(e.out, "%s is deleted, and its keys are destroyed.\n", of)
				return err
			})(cmd, args)
		},
	}
	required(cmd, &slug, "slug", "the client's slug, as kindred clients lists it")
	return cmd
}

func versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this binary",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			if !asJSON {
				_, err := fmt.Fprintln(out, "kindred", app.Version())
				return err
			}
			_, err := fmt.Fprintf(out, "{\"version\": %s}\n", strconv.Quote(app.Version()))
			return err
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}
