package app

import (
	"crypto/rand"

	"kindred/commands"
	"kindred/commands/imports"
	"kindred/commands/writeapi"
	"kindred/eventstore/projector"
	"kindred/httpapi"
	"kindred/projections"
)

func (a *App) rebuilds() projector.Jobs {
	return projector.Jobs{Runner: a.Runner, Models: projections.All()}
}

// spool keeps the imports that are applied in the background.
func (a *App) spool() *imports.Spool {
	return &imports.Spool{Pool: a.Pool, Secrets: a.Vault, Entropy: rand.Reader, Now: a.Log.Now, LogEnd: a.Log.Store.Head}
}

// imports applies them.
func (a *App) imports(c *commands.Commands) *imports.Worker {
	lines := writeapi.API{Commands: c, Lines: httpapi.NewUserLines()}
	return &imports.Worker{Spool: a.spool(), Apply: lines.ApplyLines, Passing: isUnavailable, Lead: a.Runner.Lead, Logger: a.logger}
}
