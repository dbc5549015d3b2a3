package policies

import (
	"context"
	"time"

	"kindred/commands"
	"kindred/domain/event"
	"kindred/domain/id"
)

// Endings hands out how deliveries to webhooks ended.
type Endings interface {
	// Settle hands what has ended to record, in batches, each again until
	// record has taken it. It says whether there is more.
	Settle(ctx context.Context, record func(ctx context.Context, client id.Client, day time.Time, ended event.DeliveriesEnded) error) (more bool, err error)
}

// endingsPause is how long ends of deliveries gather for company.
const endingsPause = time.Second

// recordEndings records how deliveries end, until ctx ends.
func (p *Policies) recordEndings(ctx context.Context) {
	pause := time.NewTimer(endingsPause)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		more, err := p.Endings.Settle(ctx, p.recordEnded)
		if err != nil && ctx.Err() == nil {
			p.Logger.WarnContext(ctx, "ends of deliveries not recorded, trying again", "error", err)
		}
		next := endingsPause
		if more {
			next = 0
		}
		pause.Reset(next)
	}
}

func (p *Policies) recordEnded(ctx context.Context, client id.Client, day time.Time, ended event.DeliveriesEnded) error {
	return p.Commands.RecordEndings(ctx, commands.Call{Client: client, Actor: "policy:endings"}, day, ended)
}
