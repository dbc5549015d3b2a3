package cli

import (
	"fmt"
	"io"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"kindred/golden"
)

func TestCommandsAndTheirFlagsStay(t *testing.T) {
	var lines []string
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		lines = append(lines, c.CommandPath())
		for _, alias := range c.Aliases {
			lines = append(lines, c.CommandPath()+" is also "+alias)
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			short := ""
			if f.Shorthand != "" {
				short = " -" + f.Shorthand
			}
			lines = append(lines, fmt.Sprintf("%s --%s%s %s default %q", c.CommandPath(), f.Name, short, f.Value.Type(), f.DefValue))
		})
		for _, child := range c.Commands() {
			walk(child)
		}
	}
	walk(Command(func(string) string { return "" }, io.Discard, io.Discard))
	golden.Check(t, "commands.txt", lines)
}
