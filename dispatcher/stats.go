package dispatcher

import (
	"context"
	"time"

	"kindred/domain/id"
)

// Stats is the state of the queue, over all processes.
type Stats struct {
	WaitingEndpoints int           // with first attempts to be made; counted up to 2,000
	OldestWaiting    time.Duration // age of the oldest delivery that was never attempted
	RetryEndpoints   int           // with retries to come, or attempts under way; counted up to 2,000
	MostOverdue      time.Duration // how long the most overdue retry has been due
}

// Stats reads the state of the queue.
func (d *Dispatcher) Stats(ctx context.Context) (Stats, error) {
	found, err := (&queue{pool: d.Pool}).discover(ctx, [attemptKinds]id.Webhook{})
	if err != nil {
		return Stats{}, err
	}
	return Stats{
		WaitingEndpoints: len(found[firstAttempt]), OldestWaiting: oldest(found[firstAttempt]),
		RetryEndpoints: len(found[retryAttempt]), MostOverdue: oldest(found[retryAttempt]),
	}, nil
}
