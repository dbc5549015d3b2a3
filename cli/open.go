package cli

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	kindred "kindred/sdk/go"
)

// opensWithin is how long a browser may take to say that it does not open.
const opensWithin = 2 * time.Second

func (e environ) openCommand() *cobra.Command {
	return e.command(cobra.Command{
		Use:   "open",
		Short: "Open the console in a browser",
		Long: `Opens the console of the service in a browser: the one that BROWSER names, else the system's. Where
there is none, it prints the address.`,
		Example: "  kindred open\n  kindred open --profile production\n  BROWSER=firefox kindred open",
		Args:    cobra.NoArgs,
	}, open)
}

func open(ctx context.Context, c *call) error {
	stored, err := c.profiles()
	if err != nil {
		return err
	}
	k, err := kindred.New(kindred.Config{BaseURL: c.where(stored.Profiles[c.name()]), Open: true})
	if err != nil {
		return err
	}
	address := k.BaseURL() + "/console/"
	opened := c.browse(ctx, address)
	switch {
	case c.json:
		return c.print(map[string]any{"url": address, "opened": opened})
	case opened:
		c.say("Opened %s", address)
		return nil
	default:
		_, err = fmt.Fprintln(c.out, address)
		return err
	}
}

// browse says whether a browser takes an address.
func (e environ) browse(ctx context.Context, address string) bool {
	command := []string{e.getenv("BROWSER")}
	switch {
	case command[0] != "":
	case runtime.GOOS == "darwin":
		command = []string{"open"}
	case runtime.GOOS == "windows":
		command = []string{"rundll32", "url.dll,FileProtocolHandler"}
	case e.getenv("DISPLAY") == "" && e.getenv("WAYLAND_DISPLAY") == "":
		return false
	default:
		command = []string{"xdg-open"}
	}
	browser := exec.CommandContext(context.WithoutCancel(ctx), command[0], append(command[1:], address)...) //nolint:gosec // G204: the user names it
	if browser.Start() != nil {
		return false
	}
	ended := make(chan error, 1)
	go func() { ended <- browser.Wait() }() // one that goes on outlives the command
	select {
	case err := <-ended:
		return err == nil
	case <-time.After(opensWithin):
		return true
	}
}
