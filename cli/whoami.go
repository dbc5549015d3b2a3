package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"text/tabwriter"

	"github.com/spf13/cobra"

	kindred "kindred/sdk/go"
)

// who is whose credentials are used.
type who struct {
	URL        string `json:"url"`
	Profile    string `json:"profile"`
	Credential string `json:"credential"` // api_key or session
	ClientID   string `json:"client_id"`
	Name       string `json:"name,omitzero"`
	Member     string `json:"member,omitzero"`
	Livemode   *bool  `json:"livemode,omitzero"` // absent where the service does not say
}

func (e environ) whoamiCommand() *cobra.Command {
	return e.command(cobra.Command{
		Use:     "whoami",
		Short:   "Tell which client, and whose key or login, commands use",
		Example: "  kindred whoami\n  KINDRED_API_KEY=… kindred whoami --json\n  kindred whoami --profile sandbox",
		Args:    cobra.NoArgs,
	}, connected(whoami))
}

func whoami(ctx context.Context, c *call, k *kindred.Client) error {
	is := who{Profile: c.name(), Credential: "api_key", URL: k.BaseURL()}
	if c.getenv("KINDRED_API_KEY") == "" {
		stored, err := c.profiles()
		if err != nil {
			return err
		}
		is.Credential, is.Member = "session", stored.Profiles[c.name()].Member
	}
	id, err := k.ClientID(ctx)
	if err != nil {
		return err
	}
	is.ClientID = id
	details, livemode, err := client(ctx, k)
	refused, ok := errors.AsType[*kindred.Error](err)
	switch {
	case ok && refused.Status == http.StatusForbidden: // a key that may only write
	case err != nil:
		return err
	default:
		is.Name = details.Name
	}
	if livemode != "" {
		is.Livemode = new(livemode == "true")
	}
	if c.json {
		return c.print(is)
	}
	table := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	for _, row := range [][2]string{
		{"service", is.URL}, {"client", is.ClientID}, {"name", is.Name}, {"by", is.Credential}, {"member", is.Member}, {"profile", is.Profile}, {"live", livemode},
	} {
		if row[1] != "" {
			fmt.Fprintf(table, "%s\t%s\n", row[0], Printable(row[1]))
		}
	}
	return table.Flush()
}

const livemodeHeader = "X-Kindred-Livemode"

// client is the client, and whether it is live: "true", "false" or, where the
// service does not say, "".
func client(ctx context.Context, k *kindred.Client) (*kindred.ClientDetails, string, error) {
	var a kindred.Answer
	details, err := k.Client.Get(ctx, kindred.WithAnswer(&a))
	return details, a.Header.Get(livemodeHeader), err
}
