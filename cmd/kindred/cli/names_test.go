package cli

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"kindred"
	"kindred/golden"
	"kindred/testkit"
)

func TestCommandsAndTheirFlagsStay(t *testing.T) {
	var lines []string
	var docs []byte
	for _, page := range []string{"README.md", "docs/cli.md", "docs/operations.md"} {
		docs = append(docs, testkit.Must(kindred.Documentation.ReadFile(page))(t)...)
	}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		lines = append(lines, c.CommandPath())
		if told := "(kindred |`)" + strings.TrimPrefix(c.CommandPath(), "kindred ") + "\\b|`" + c.Name() + "`"; c.Runnable() && !regexp.MustCompile(told).Match(docs) {
			t.Errorf("neither docs/cli.md nor docs/operations.md tells what %s does", c.CommandPath())
		}
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
