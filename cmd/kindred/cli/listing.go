package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// listing prints items as a table for people, or as one JSON array. It holds
// about tablePage rows at a time.
type listing struct {
	out   io.Writer
	table *tabwriter.Writer // nil: JSON
	items int
}

func newListing(out io.Writer, asJSON bool, columns ...string) *listing {
	l := &listing{out: out}
	if !asJSON {
		l.table = tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(l.table, strings.Join(columns, "\t"))
	}
	return l
}

// add prints an item, or the row that tells of it.
func (l *listing) add(item any, row ...string) error {
	l.items++
	if l.table != nil {
		if _, err := fmt.Fprintln(l.table, strings.Join(row, "\t")); err != nil || l.items%tablePage != 0 {
			return err
		}
		return l.table.Flush()
	}
	text, err := json.Marshal(item)
	if err != nil {
		return fmt.Errorf("encode an item: %w", err)
	}
	before := ",\n "
	if l.items == 1 {
		before = "["
	}
	_, err = fmt.Fprintf(l.out, "%s%s", before, text)
	return err
}

func (l *listing) end() error {
	if l.table != nil {
		return l.table.Flush()
	}
	closing := "]\n"
	if l.items == 0 {
		closing = "[]\n"
	}
	_, err := io.WriteString(l.out, closing)
	return err
}

func jsonFlag(cmd *cobra.Command, into *bool) {
	cmd.Flags().BoolVar(into, "json", false, "print JSON")
}

// oneOf takes arguments that are among names, and names them where one is not.
func oneOf(what string, names []string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		for _, arg := range args {
			if !slices.Contains(names, arg) {
				return fmt.Errorf("%q is no %s; there are %s", arg, what, strings.Join(names, ", "))
			}
		}
		return nil
	}
}
