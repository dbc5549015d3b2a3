package cli

import (
	"io"
	"os"

	client "kindred/cli"
)

// terminal is the terminal that is written to, by way of the log or at once,
// or nil.
func terminal(out io.Writer) *os.File {
	if lines, ok := out.(*logLines); ok {
		out = lines.out
	}
	return client.Terminal(out)
}

func newBar(out io.Writer, what string) *client.Bar {
	return client.NewBar(terminal(out), what)
}
