package demo

import (
	"cmp"

	"github.com/spf13/cobra"
)

// Command is `kindred demo`, in an environment.
func Command(getenv func(string) string) *cobra.Command {
	var o Options
	c := &cobra.Command{
		Use:   "demo",
		Short: "Play the whole story against a running service, and check each step",
		Long: `Signs a company up, imports people, matches and clusters them, has clusters drift and a campaign
spend its budget, receives all five signed webhooks and forgets a person, over the HTTP API of a
running service. Fails where anything is not as it should be.

The receiver listens on 127.0.0.1, so the service has to run on this machine and may deliver there:
make run sees to that, else set KINDRED_WEBHOOK_ALLOW_NETWORKS=127.0.0.0/8.`,
		Example: `  kindred demo
  kindred demo --users 5000 --seed 7
  kindred demo --csv people.csv --id email --ignore notes
  kindred demo --csv adult-train.csv --ignore fnlwgt --header age,workclass,fnlwgt,education,education_num,` +
			`marital_status,occupation,relationship,race,sex,capital_gain,capital_loss,hours_per_week,native_country,income`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o.Out = c.OutOrStdout()
			return Run(c.Context(), o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.URL, "url", cmp.Or(getenv("KINDRED_URL"), "http://127.0.0.1:8080"), "where the service listens; KINDRED_URL where it is left out")
	f.IntVar(&o.Users, "users", 400, "how many people are made up")
	f.Uint64Var(&o.Seed, "seed", 1, "the same seed makes up the same people")
	f.StringVar(&o.CSV, "csv", "", "a file of real people instead; a ? or an empty field is a missing value")
	f.StringSliceVar(&o.Header, "header", nil, "the names of the file's columns (default: its first line)")
	f.StringVar(&o.ID, "id", "", "the column with their own identifier (default: the row's number)")
	f.StringSliceVar(&o.Ignore, "ignore", nil, "columns to leave out")
	f.IntVar(&o.Limit, "limit", 0, "at most so many people of the file (default: all)")
	c.MarkFlagsMutuallyExclusive("csv", "users")
	c.MarkFlagsMutuallyExclusive("csv", "seed")
	return c
}
