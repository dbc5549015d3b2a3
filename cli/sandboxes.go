package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	kindred "kindred/sdk/go"
)

func (e environ) sandboxesCommand() *cobra.Command {
	sandboxes := &cobra.Command{
		Use: "sandboxes", Short: "Clients beside the client, to try things out in",
		Example: "  kindred sandboxes create ci --expires-in 24h\n  kindred trigger match.computed --sandbox cli_…\n  kindred sandboxes clock --sandbox cli_… --by 24h",
	}
	sandboxes.AddCommand(
		e.command(cobra.Command{
			Use: "list", Short: "List the sandboxes", Example: "  kindred sandboxes list", Args: cobra.NoArgs,
		}, connected(listSandboxes)),
		e.createSandboxCommand(),
		e.clockCommand(),
		e.command(cobra.Command{
			Use: "delete SANDBOX", Short: "Delete a sandbox and all in it, for good", Example: "  kindred sandboxes delete cli_…", Args: cobra.ExactArgs(1),
		}, connected(deleteSandbox)),
	)
	return sandboxes
}

func listSandboxes(ctx context.Context, c *call, k *kindred.Client) error {
	_, err := list(c, k.Sandboxes.List(ctx, kindred.ListSandboxesParams{}), func(s kindred.Sandbox) string {
		until := ""
		if s.ExpiresAt != nil {
			until = "until " + s.ExpiresAt.Format(time.RFC3339)
		}
		return fmt.Sprintf("%s\t%s\t%s", s.ID, Printable(s.Name), until)
	})
	return err
}

func (e environ) createSandboxCommand() *cobra.Command {
	var life time.Duration
	c := e.command(cobra.Command{
		Use: "create NAME", Short: "Make a sandbox", Example: "  kindred sandboxes create ci --expires-in 24h", Args: cobra.ExactArgs(1),
	}, connected(func(ctx context.Context, c *call, k *kindred.Client) error {
		body := kindred.NewSandbox{Name: c.args[0]}
		if life != 0 {
			body.ExpiresIn = new(int64(life / time.Second))
		}
		made, err := k.Sandboxes.Create(ctx, body)
		if err != nil {
			return err
		}
		if c.json {
			return c.print(made)
		}
		_, err = fmt.Fprintln(c.out, made.ID)
		return err
	}))
	c.Flags().DurationVar(&life, "expires-in", 0, "after how long it deletes itself, such as 24h (default: never)")
	return c
}

func deleteSandbox(ctx context.Context, c *call, k *kindred.Client) error {
	if err := k.Sandboxes.Delete(ctx, c.args[0]); err != nil || !c.json {
		return err
	}
	return c.print(map[string]string{"deleted": c.args[0]})
}

func (e environ) clockCommand() *cobra.Command {
	var to string
	var by time.Duration
	c := e.command(cobra.Command{
		Use: "clock", Short: "Tell what the clock of a sandbox says, or move it forward",
		Example: "  kindred sandboxes clock --sandbox cli_…\n  kindred sandboxes clock --sandbox cli_… --by 24h", Args: cobra.NoArgs,
	}, connected(func(ctx context.Context, c *call, k *kindred.Client) error {
		clock, err := k.Sandboxes.GetClock(ctx)
		if err != nil {
			return err
		}
		at := clock.Now.Add(by)
		if to != "" {
			if at, err = time.Parse(time.RFC3339, to); err != nil {
				return fmt.Errorf("--to %s is no time such as 2026-01-31T12:00:00Z", to)
			}
		}
		if by != 0 || to != "" {
			if clock, err = k.Sandboxes.MoveClock(ctx, kindred.ClockMove{To: at}); err != nil {
				return err
			}
		}
		if c.json {
			return c.print(clock)
		}
		_, err = fmt.Fprintln(c.out, clock.Now.Format(time.RFC3339))
		return err
	}))
	c.Flags().StringVar(&to, "to", "", "move it to this time, such as 2026-01-31T12:00:00Z")
	c.Flags().DurationVar(&by, "by", 0, "move it by so much, such as 24h")
	c.MarkFlagsMutuallyExclusive("to", "by")
	return c
}

// errKeyOfOne is for an API key where a sandbox is named.
var errKeyOfOne = errors.New("--sandbox goes with a login: the API key in KINDRED_API_KEY is of one client, in a sandbox one that begins with kin_test_")
