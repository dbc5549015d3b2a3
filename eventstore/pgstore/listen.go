package pgstore

import (
	"context"
	"time"

	"kindred/eventstore"
	"kindred/eventstore/tail"
	"kindred/postgres"
)

// pollInterval is how often the log is looked at, for when nothing can be heard.
const pollInterval = 250 * time.Millisecond

// commits is what a tail wants to hear of what other processes append.
func commits(t *tail.Tail) postgres.Follow {
	return postgres.Follow{
		Channel: "kindred_log",
		Begin:   func(int64) { t.Forget() }, // a backup may have been put in place; it also signals what came before
		Heard: func(payload string) { // the position where a commit ended
			position := eventstore.Position(payload)
			if n, err := numberOf(position); err != nil || n == 0 { // a load says only that there is something
				t.Signal()
				return
			}
			t.Reached(position)
		},
	}
}

// poll signals every now and then until ctx ends.
func poll(ctx context.Context, t *tail.Tail) {
	every := time.NewTicker(pollInterval)
	defer every.Stop()
	for {
		select {
		case <-every.C:
			t.Signal()
		case <-ctx.Done():
			return
		}
	}
}
