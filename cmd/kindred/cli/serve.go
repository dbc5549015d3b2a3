package cli

import (
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"kindred/app"
)

// heapFloor is how much of the heap may be garbage however little is in use: a
// small heap would be collected many times a second.
const heapFloor = 64 << 20 // bytes

func (e environ) serveCommand() *cobra.Command {
	var settings strings.Builder
	app.DescribeSettings(&settings)
	return &cobra.Command{
		Use:   "serve",
		Short: "Serve until interrupted",
		Long:  "Serve until interrupted.\n\nEnvironment variables:\n" + settings.String(),
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := app.ReadConfig(e.getenv)
			if err != nil {
				return err
			}
			for _, name := range app.Misspelt(os.Environ()) {
				e.logger.WarnContext(cmd.Context(), "a variable that is no setting is ignored; kindred serve --help lists them all", "name", name)
			}
			floor := make([]byte, heapFloor) // never touched: it takes no memory itself
			forget(floor)
			defer runtime.KeepAlive(floor)
			served := false
			err = app.Serve(cmd.Context(), config, e.logger, app.Hashing{Cores: e.cores}, func(at app.Config) {
				served = true
				debug.FreeOSMemory() // reading the contract leaves 30 MiB behind
				greet(e.out, at)
			})
			if err != nil && !served && cmd.Context().Err() != nil { // what was broken off has not failed
				e.logger.InfoContext(cmd.Context(), "stopped before it served", "error", err)
				return nil
			}
			return err
		},
	}
}
