package auditing

import (
	"context"

	"kindred/domain/id"
	"kindred/eventstore"
)

// FirstPage reads the first page of an export, of at most limit events, and says how many bytes
// of the log are in memory then.
func (a *Auditor) FirstPage(ctx context.Context, client id.Client, size int64, limit int) (events, bytes int, err error) {
	x := export{Auditor: a, client: client, size: size}
	page, err := x.fetch(ctx, 0, eventstore.Start, limit)
	for _, r := range page.records {
		bytes += len(r.Data) + len(r.Meta)
	}
	return len(page.entries), bytes, err
}
