package app

import (
	"kindred/dispatcher"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/projections"
)

// Resumable are the followers that quarantine clients and cannot be rebuilt.
// What they follow up to a place of the log stays silent: it was another's to
// deliver, and to match.
func Resumable(silentThrough eventstore.Position) []projector.Projection {
	return []projector.Projection{
		&dispatcher.Dispatcher{SilentThrough: silentThrough}, projections.MatchQueue{SilentThrough: silentThrough},
	}
}
