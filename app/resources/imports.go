package resources

import (
	"context"
	"io"

	"kindred/commands"
	"kindred/commands/imports"
	"kindred/commands/writeapi"
	"kindred/domain/id"
	"kindred/httpapi"
)

// Imports puts the spool of imports into the words of the contract.
type Imports struct{ Spool *imports.Spool }

// Accept implements [writeapi.Imports].
// Faults: import_unknown, too_large, too_many_imports, too_much_waiting.
func (s Imports) Accept(ctx context.Context, call commands.Call, mode string, body io.Reader, maxLine int) (httpapi.Import, error) {
	accepted, err := s.Spool.Receive(ctx, call, mode, body, maxLine)
	return importBody(accepted), err
}

// Get implements [readapi.Imports].
// Faults: import_unknown.
func (s Imports) Get(ctx context.Context, client id.Client, named id.Import) (httpapi.Import, error) {
	found, err := s.Spool.Get(ctx, client, named)
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
