// Package cli is the command line of a client of kindred: what its subcommands
// do stands on the SDK, so whoever has a key or an account can do the same.
//
// Secrets come from the environment, from a terminal or from standard input,
// never from an argument, which every process of a machine can read.
package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/spf13/cobra"

	kindred "kindred/sdk/go"
)

const localURL = "http://127.0.0.1:8080" // where make run serves

// environ is what a command finds around it.
type environ struct {
	getenv func(string) string
}

// Commands are the subcommands of a client, in an environment.
func Commands(getenv func(string) string) []*cobra.Command {
	e := environ{getenv}
	return []*cobra.Command{
		e.loginCommand(), e.logoutCommand(), e.whoamiCommand(), e.openCommand(), e.listenCommand(), e.triggerCommand(), e.eventsCommand(), e.usersCommand(), e.segmentsCommand(), e.clustersCommand(), e.sandboxesCommand(),
	}
}

// options are what all commands take.
type options struct {
	environ
	profile, url string
	sandbox      string
	json         bool
}

// command makes a subcommand of a client.
func (e environ) command(c cobra.Command, run func(context.Context, *call) error) *cobra.Command {
	o := &options{environ: e}
	f := c.Flags()
	f.StringVar(&o.profile, "profile", "", "the stored profile to use (default: KINDRED_PROFILE, or \"default\")")
	f.StringVar(&o.url, "url", "", "where kindred is (default: KINDRED_URL, the profile's, or "+localURL+")")
	f.StringVar(&o.sandbox, "sandbox", "", "the sandbox beside the login's client, cli_…, to work in")
	f.BoolVar(&o.json, "json", false, "print JSON")
	completed(&c, "profile", func() []string {
		stored, err := e.profiles()
		if err != nil {
			return nil
		}
		return stored.names()
	})
	c.RunE = func(cmd *cobra.Command, args []string) error {
		err := run(cmd.Context(), &call{options: o, Command: cmd, args: args, out: cmd.OutOrStdout(), errs: cmd.ErrOrStderr()})
		if interrupted(cmd.Context(), err) {
			return errInterrupted
		}
		if kindred.Is(err, kindred.CodeInvalidSession) {
			return fmt.Errorf("the login of the profile %s has ended: kindred login", o.name())
		}
		if nobody, found := errors.AsType[*net.OpError](err); found && nobody.Op == "dial" && errors.Is(err, kindred.ErrConnection) {
			return &shortened{fmt.Sprintf("no service answers: %v; is it running? KINDRED_URL, --url or the login says where", nobody), err}
		}
		return plain(err)
	}
	return &c
}

var errInterrupted = errors.New("interrupted")

// interrupted says whether a command fails since its user ends it.
func interrupted(ctx context.Context, err error) bool {
	return ctx.Err() != nil && errors.Is(err, context.Canceled)
}

// untilInterrupted runs what goes on until its user ends it.
func untilInterrupted(run func(context.Context, *call) error) func(context.Context, *call) error {
	return func(ctx context.Context, c *call) error {
		if err := run(ctx, c); !interrupted(ctx, err) {
			return err
		}
		return nil
	}
}

// call is one run of a command.
type call struct {
	*options
	*cobra.Command
	args      []string
	out, errs io.Writer
}

// completed makes a shell complete a flag's value.
func completed(c *cobra.Command, flag string, values func() []string) {
	err := c.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return values(), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // the flag is made before
	}
}

// required makes a command refuse to do without a flag.
func required(c *cobra.Command, flag string) *cobra.Command {
	if err := c.MarkFlagRequired(flag); err != nil {
		panic(err) // the flag is made before
	}
	return c
}

// name of the profile.
func (o *options) name() string {
	return cmp.Or(o.profile, o.getenv("KINDRED_PROFILE"), "default")
}

// connect makes a client of the API key in the environment, or of the profile's
// login.
func (o *options) connect() (*kindred.Client, error) {
	key, stored := o.getenv("KINDRED_API_KEY"), profiles{}
	if key == "" || o.url == "" && o.getenv("KINDRED_URL") == "" {
		var err error
		if stored, err = o.profiles(); err != nil {
			return nil, err
		}
	}
	p := stored.Profiles[o.name()]
	if key != "" && o.sandbox != "" {
		return nil, errKeyOfOne
	}
	if key != "" {
		return kindred.New(kindred.Config{BaseURL: o.where(p), APIKey: key})
	}
	return o.loggedIn(p)
}

// print writes a value as a line of JSON.
func (c *call) print(value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.out, "%s\n", text)
	return err
}

// list prints items as a table for people, or as JSON, a line each, and says whether there were some.
func list[T any](c *call, items iter.Seq2[T, error], row func(T) string) (some bool, err error) {
	table := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	for item, err := range items {
		switch {
		case err != nil:
			return some, err
		case c.json:
			err = c.print(item)
		default:
			_, err = fmt.Fprintln(table, row(item))
		}
		if err != nil {
			return some, err
		}
		some = true
	}
	return some, table.Flush()
}

// say tells people what happens; machines read what is printed.
func (c *call) say(format string, arguments ...any) {
	if !c.json {
		fmt.Fprintf(c.errs, format+"\n", arguments...)
	}
}

// plain is an error of the SDK without its name before it.
func plain(err error) error {
	if err == nil {
		return nil
	}
	if text, found := strings.CutPrefix(err.Error(), "kindred: "); found {
		return &shortened{text, err}
	}
	return err
}

type shortened struct {
	text string
	error
}

func (s *shortened) Error() string { return s.text }
func (s *shortened) Unwrap() error { return s.error }

// Printable is a text that others chose, without what a terminal takes for a
// command.
func Printable(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return text
	}
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1]
}

// coloured is a text in a colour, on a terminal whose user allows colours (no-color.org).
func (c *call) coloured(colour int, text string) string {
	if Terminal(c.out) == nil || c.getenv("NO_COLOR") != "" || c.getenv("TERM") == "dumb" {
		return text
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", colour, text)
}

const (
	red   = 31
	green = 32
)
