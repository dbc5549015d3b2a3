package app

import (
	"context"
	"crypto/rand"
	"io"

	"kindred/commands"
	"kindred/commands/imports"
	"kindred/commands/writeapi"
	"kindred/domain/id"
	"kindred/httpapi"
)

// spooled puts the spool of imports into the words of the contract.
type spooled struct{ spool *imports.Spool }

// Accept implements [writeapi.Imports].
func (s spooled) Accept(ctx context.Context, call commands.Call, mode string, body io.Reader, maxLine int) (httpapi.Import, error) {
	accepted, err := s.spool.Receive(ctx, call, mode, body, maxLine)
	return importBody(accepted), err
}

// Get implements [readapi.Imports].
func (s spooled) Get(ctx context.Context, client id.Client, named id.Import) (httpapi.Import, error) {
	found, err := s.spool.Get(ctx, client, named)
	return importBody(found), err
}

func importBody(i imports.Import) httpapi.Import {
	body := httpapi.Import{
		ID: i.ID, Status: httpapi.ImportStatus(i.Status), Mode: httpapi.ImportMode(i.Mode),
		Lines: i.Lines, LinesDone: i.LinesDone, Created: i.Created, Updated: i.Updated, Failed: i.Failed,
		Errors: writeapi.LineErrors(i.Errors), CreatedAt: httpapi.Time{Time: i.CreatedAt}, EndedAt: httpapi.TimeOrNull(i.EndedAt),
	}
	if i.Status == imports.Completed {
		body.Progress = 1
	} else if i.Lines > 0 {
		body.Progress = float64(i.LinesDone) / float64(i.Lines)
	}
	return body
}

// spool keeps the imports that are applied in the background.
func (a *App) spool() *imports.Spool {
	return &imports.Spool{Pool: a.Pool, Secrets: a.Vault, Entropy: rand.Reader, LogEnd: a.Log.Store.Head}
}

// imports applies them.
func (a *App) imports(c *commands.Commands) *imports.Worker {
	lines := writeapi.API{Commands: c, Lines: httpapi.NewUserLines()}
	return &imports.Worker{Spool: a.spool(), Apply: lines.ApplyLines, Passing: isUnavailable, Lead: a.Runner.Lead, Logger: a.logger}
}
