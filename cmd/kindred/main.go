// Command kindred serves the multi-tenant matching and segmentation service
// and the tools of those who run it.
package main

import (
	"os"

	"kindred/cmd/kindred/cli"
)

func main() { os.Exit(cli.Main()) }
