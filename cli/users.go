package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	kindred "kindred/sdk/go"
)

func (e environ) usersCommand() *cobra.Command {
	users := &cobra.Command{Use: "users", Short: "Bring end users in", Example: "  kindred users import people.csv"}
	users.AddCommand(e.importCommand())
	return users
}

func (e environ) importCommand() *cobra.Command {
	var format, mode string
	c := e.command(cobra.Command{
		Use:   "import FILE",
		Short: "Create or change the users of a file",
		Long: `Streams a file to the service, which takes each line by itself: a line that is wrong costs the others
nothing, and is told with its number. A file of CSV names the traits in its first line, and has a column
external_id; what begins with { has an object of JSON a line. A dash reads standard input.`,
		Example: `  kindred users import people.csv
  kindred users import people.ndjson --mode replace --json
  gunzip -c people.csv.gz | kindred users import -`,
		Args: cobra.ExactArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"csv", "tsv", "txt", "ndjson", "jsonl"}, cobra.ShellCompDirectiveFilterFileExt
		},
	}, func(ctx context.Context, c *call) error {
		switch format {
		case "", "csv", "ndjson":
			return c.importUsers(ctx, c.args[0], format, mode)
		}
		return fmt.Errorf("--format is csv or ndjson, not %q", format)
	})
	f := c.Flags()
	f.StringVar(&format, "format", "", "csv or ndjson (default: by how the file begins)")
	f.StringVar(&mode, "mode", "merge", "what becomes of a user's traits that are there already: merge or replace")
	completed(c, "format", func() []string { return []string{"csv", "ndjson"} })
	completed(c, "mode", func() []string { return []string{"merge", "replace"} })
	return c
}

func (c *call) importUsers(ctx context.Context, name, format, mode string) error {
	lines, end, err := c.linesOf(name)
	if err != nil {
		return err
	}
	if format == "" {
		if format, lines, err = formatOf(ctx, name, lines); err != nil {
			return err
		}
	}
	k, err := c.connect()
	if err != nil {
		return err
	}
	var opts []kindred.Option
	if format == "csv" {
		opts = append(opts, kindred.WithCSV())
	}
	result, err := k.Users.Import(ctx, lines, kindred.ImportUsersParams{Mode: mode}, opts...)
	end()
	if err != nil {
		return err
	}
	if c.json {
		err = c.print(result)
	} else {
		err = c.tellImport(result)
	}
	if err == nil && result.Failed > 0 {
		err = fmt.Errorf("refused: %d of %d lines", result.Failed, result.Created+result.Updated+result.Failed)
	}
	return err
}

// linesOf opens a file, under a bar where there is a terminal to show it.
func (c *call) linesOf(name string) (io.Reader, func(), error) {
	if name == "-" {
		return io.MultiReader(c.InOrStdin()), func() {}, nil // not one that can be sent again
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil && info.IsDir() {
		err = fmt.Errorf("%s is a directory", name)
	}
	if err != nil {
		_ = file.Close() // nothing was read
		return nil, nil, err
	}
	var terminal *os.File
	if !c.json {
		terminal = Terminal(c.errs)
	}
	bar := NewBar(terminal, "bytes sent")
	return &again{ReadUnder{Bar: bar, File: file, Total: info.Size()}, file}, func() {
		bar.End()
		_ = file.Close() // it was read
	}, nil
}

// looksAt is how many bytes of a file say what it is, at most.
const looksAt = 512

// formatOf says what a file is, by how it begins, as the console does: a file of CSV may be called .txt, or have no name. The
// service says of what is neither how to make it one. The lines are to be read from what is returned.
func formatOf(ctx context.Context, name string, lines io.Reader) (format string, whole io.Reader, err error) {
	first, err := unlessInterrupted(ctx, func() ([]byte, error) { return io.ReadAll(io.LimitReader(lines, looksAt)) })
	if err != nil {
		return "", nil, err
	}
	file, again := lines.(io.Seeker)
	if again {
		_, err = file.Seek(0, io.SeekStart)
	}
	if !again || err != nil { // a pipe
		lines = io.MultiReader(bytes.NewReader(first), lines)
	}
	begins := bytes.TrimLeft(bytes.TrimPrefix(first, []byte("\ufeff")), " \t\r\n")
	if ext := strings.ToLower(filepath.Ext(name)); bytes.HasPrefix(begins, []byte("{")) || ext == ".ndjson" || ext == ".jsonl" {
		return "ndjson", lines, nil
	}
	return "csv", lines, nil
}

// again is a file under a bar that can be read again from its beginning.
type again struct {
	ReadUnder
	file *os.File
}

func (a *again) Seek(offset int64, whence int) (int64, error) {
	at, err := a.file.Seek(offset, whence)
	a.read = at
	return at, err
}

func (c *call) tellImport(r *kindred.ImportResult) error {
	if _, err := fmt.Fprintf(c.out, "%d created, %d updated, %d refused\n", r.Created, r.Updated, r.Failed); err != nil {
		return err
	}
	for _, e := range r.Errors {
		if _, err := fmt.Fprintf(c.out, "line %d: %s: %s\n", e.Line, e.Code, Printable(e.Detail)); err != nil {
			return err
		}
		for _, f := range e.Errors {
			if _, err := fmt.Fprintf(c.out, "  %s %s\n", Printable(f.Pointer), Printable(f.Detail)); err != nil {
				return err
			}
		}
	}
	return nil
}
