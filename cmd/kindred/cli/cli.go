// Package cli is the command line of kindred: its subcommands, their flags and what
// they print. What they do stands on [app.App].
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"kindred/app"
	client "kindred/cli"
	"kindred/cmd/kindred/demo"
)

// Main runs the command that the arguments of this process name, and returns its
// exit code.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), endings()...)
	context.AfterFunc(ctx, stop) // a second signal ends what does not heed the first
	lines := &logLines{out: os.Stderr}
	log.SetFlags(0)
	log.SetOutput(libraryLog{newLogger(lines, os.Getenv)})
	root := Command(os.Getenv, os.Stdout, lines)
	root.PersistentPreRun = setUp
	err := root.ExecuteContext(ctx)
	stop()
	_ = lines.flush() // there is nowhere else to tell of it
	if err != nil {
		fmt.Fprintln(os.Stderr, "kindred:", err)
	}
	return exitCode(err)
}

// endings are the signals that end a command in order. One that hangs up is not among them
// where it was ignored at the start, as under nohup.
func endings() []os.Signal {
	if signal.Ignored(syscall.SIGHUP) {
		return []os.Signal{os.Interrupt, syscall.SIGTERM}
	}
	return []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}
}

// exitCode is 2 where help is asked for about what there is not: it was called wrongly, and nothing has failed.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if _, none := errors.AsType[*noTopicError](err); none {
		return 2
	}
	return 1
}

// Command is the command line of kindred in an environment.
func Command(getenv func(string) string, out, errs io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:           "kindred",
		Short:         "Matching and segmentation for many clients, event-sourced, on one Postgres",
		Version:       app.Version(),
		SilenceUsage:  true,
		SilenceErrors: true,

		SuggestionsMinimumDistance: 2,

		Long: "Matching and segmentation for many clients, event-sourced, on one Postgres.\n\nClients set KINDRED_URL and KINDRED_API_KEY. " +
			"Whoever operates it finds its settings in kindred serve --help.",
	}
	root.SetOut(out)
	root.SetErr(errs)
	env := newEnviron(getenv, out, errs)
	root.AddGroup(&cobra.Group{ID: "use", Title: "Use kindred, as a client:"}, &cobra.Group{ID: "operate", Title: "Operate kindred:"})
	group(root, "use", append(client.Commands(getenv), demo.Command(getenv))...)
	group(root, "operate", env.serveCommand(), env.migrateCommand(), env.keysCommand(), env.projectionsCommand(), env.historyCommand(), env.clientsCommand(), versionCommand())
	root.InitDefaultCompletionCmd() // now, so that it refuses what it does not have
	refuseUnknown(root)
	refuseTopics(root)
	root.RunE, root.Args = runGroup, cobra.ArbitraryArgs // those of cobra say less
	root.SetFlagErrorFunc(tellsOfHelp)
	return root
}

// tellsOfHelp says where it stands what a command takes: cobra only says that it was given something else.
func tellsOfHelp(c *cobra.Command, err error) error {
	if names := c.Flags().Args(); !c.HasParent() && len(names) > 0 { // a flag of a command that there is not
		return noCommand(c, names[0])
	}
	return fmt.Errorf("%w; %s --help shows how it is called", err, c.CommandPath())
}

type noTopicError struct{ topic string }

func (e *noTopicError) Error() string {
	return fmt.Sprintf("there is no command %q; kindred help lists them", e.topic)
}

// refuseTopics lets help refuse what it knows nothing about: cobra shows the help of what is above it.
func refuseTopics(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() == "help" {
			c.Args = func(_ *cobra.Command, args []string) error {
				if _, rest, err := root.Find(args); err != nil || len(rest) > 0 {
					return &noTopicError{strings.Join(args, " ")}
				}
				return nil
			}
		}
	}
}

// refuseUnknown lets groups of commands refuse what they do not have: cobra shows their help, as if that
// had been asked for. The others say how they are used where their arguments are refused, which cobra only
// counts, and where a flag lacks.
func refuseUnknown(of *cobra.Command) {
	for _, c := range of.Commands() {
		if c.HasSubCommands() && !c.Runnable() {
			c.DisableFlagsInUseLine = true
			c.Args = nil // those of cobra say less than what follows
			c.RunE = runGroup
		}
		if takes := c.Args; takes != nil {
			c.Args = func(c *cobra.Command, args []string) error {
				if err := takes(c, args); err != nil {
					return fmt.Errorf("%w; usage: %s", err, c.UseLine())
				}
				return nil
			}
		}
		c.PreRunE = func(c *cobra.Command, _ []string) error {
			if err := c.ValidateRequiredFlags(); err != nil {
				return tellsOfHelp(c, err)
			}
			return nil
		}
		refuseUnknown(c)
	}
}

// runGroup is what a group of commands does without one: it shows its help, as if that had been asked for.
func runGroup(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	return noCommand(c, args[0])
}

// noCommand says what a group of commands does not have, and what is spelled alike.
func noCommand(c *cobra.Command, name string) error {
	group := strings.TrimPrefix(c.CommandPath(), c.Root().Name()+" ")
	help := strings.TrimSuffix("kindred help "+strings.TrimPrefix(group, "kindred"), " ")
	if alike := c.SuggestionsFor(name); len(alike) > 0 {
		return fmt.Errorf("%s has no command %q, but %s; %s lists them", group, name, strings.Join(alike, ", "), help)
	}
	return fmt.Errorf("%s has no command %q; %s lists them", group, name, help)
}

func group(root *cobra.Command, name string, commands ...*cobra.Command) {
	for _, c := range commands {
		c.GroupID = name
	}
	root.AddCommand(commands...)
}

// environ is what a command finds around it.
type environ struct {
	getenv func(string) string
	out    io.Writer
	logger *slog.Logger
	cores  int // that passwords are hashed on
}

// newEnviron is called before setUp, which makes more turns than there are cores:
// a container's quota bounds the turns alone, not NumCPU.
func newEnviron(getenv func(string) string, out, errs io.Writer) environ {
	return environ{getenv: getenv, out: out, logger: newLogger(errs, getenv), cores: min(runtime.NumCPU(), runtime.GOMAXPROCS(0))}
}
