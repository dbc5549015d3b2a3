// Command kindred serves the multi-tenant matching and segmentation service
// and the tools of those who run it. This package is the only wiring.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	_ "time/tzdata" // analytics know every time zone, whatever the machine does

	"github.com/spf13/cobra"

	"kindred/cmd/kindred/demo"
	"kindred/httpapi/auth"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	lines := &logLines{out: os.Stderr}
	log.SetFlags(0)
	log.SetOutput(libraryLog{newLogger(lines, os.Getenv)})
	root := command(os.Getenv, os.Stdout, lines)
	root.PersistentPreRun = setUp
	err := root.ExecuteContext(ctx)
	stop()
	_ = lines.flush() // there is nowhere else to tell of it
	if err != nil {
		fmt.Fprintln(os.Stderr, "kindred:", err)
		os.Exit(1)
	}
}

// command is the command line of kindred.
func command(getenv func(string) string, out, errs io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:           "kindred",
		Short:         "Matching and segmentation for many clients, event-sourced, on one Postgres",
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Long:          "Matching and segmentation for many clients, event-sourced, on one Postgres.\n\n" + environment(),
	}
	root.SetOut(out)
	root.SetErr(errs)
	env := newEnviron(getenv, out, errs)
	root.AddCommand(
		env.serveCommand(), env.migrateCommand(), env.keysCommand(), env.projectionsCommand(), env.historyCommand(), env.clientsCommand(),
		demo.Command(), versionCommand(),
	)
	return root
}

// environ is what a command finds around it.
type environ struct {
	getenv  func(string) string
	out     io.Writer
	logger  *slog.Logger
	hashing auth.Cost // of passwords; zero: the recommended one
	cores   int       // that passwords are hashed on
}

// newEnviron is called before setUp, which makes more turns than there are cores:
// a container's quota bounds the turns alone, not NumCPU.
func newEnviron(getenv func(string) string, out, errs io.Writer) environ {
	return environ{getenv: getenv, out: out, logger: newLogger(errs, getenv), cores: min(runtime.NumCPU(), runtime.GOMAXPROCS(0))}
}

func environment() string {
	var b strings.Builder
	b.WriteString("Environment variables:\n")
	describeSettings(&b)
	return b.String()
}

// version is the module's version, or the revision it was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return info.Main.Version + " (" + s.Value[:min(12, len(s.Value))] + ")"
		}
	}
	return info.Main.Version
}
