package policies

import (
	"context"
	"time"

	"kindred/commands"
	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
)

// Settle hands how deliveries to webhooks ended to a log, in batches, each again
// until the log has taken it. It says whether there is more.
type Settle func(ctx context.Context, log EndedDeliveries) (more bool, err error)

// EndedDeliveries records how deliveries ended.
type EndedDeliveries struct{ commands *commands.Commands }

// Tip is where the stream of a webhook's day ends.
func (e EndedDeliveries) Tip(ctx context.Context, client id.Client, webhook id.Webhook, day time.Time) (eventstore.Revision, error) {
	return e.commands.EndingsTip(ctx, client, webhook, day)
}

// Record records a batch, unless it stands in its stream behind a revision.
func (e EndedDeliveries) Record(ctx context.Context, client id.Client, day time.Time, after eventstore.Revision, ended event.DeliveriesEnded) error {
	return e.commands.RecordEndings(ctx, commands.Call{Client: client, Actor: "policy:endings"}, day, after, ended)
}

// endingsPause is how long ends of deliveries gather for company.
const endingsPause = time.Second

// recordEndings records how deliveries ended.
func (p *Policies) recordEndings(ctx context.Context) (more bool, err error) {
	return p.Settle(ctx, EndedDeliveries{p.Commands})
}
