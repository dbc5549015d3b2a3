package app

import (
	"runtime"
	"time"

	"kindred/commands"
	"kindred/eventstore/projector"
	"kindred/projections"
	"kindred/semaphore"
)

const (
	// limit: imports | batches of imports, 512 lines or 1 MiB, and changes of 32 KiB or more, that are appended and cannot be read yet | as many as GOMAXPROCS, which is two a processor, {largeAppends} at least, half of them of a client | the import or request waits, for each {largePatience} at most
	largeAppends = 2
	// limit: imports | batches of imports, and changes of 32 KiB or more, that wait to be appended, all clients | {importsWaiting} | 503 `busy`
	importsWaiting = 1_024
	// limit: imports | batches of imports, and changes of 32 KiB or more, by which a model may be behind that no read has waited for lately; as many requests of more than 20 matches | {aheadUnread} | the import or request waits
	aheadUnread = 40
	// limit: edge | requests that record more than 20 matches, which are appended and cannot be read yet | as many as GOMAXPROCS, which is two a processor, {largeAppends} at least, half of them of a client; the others wait, for each {largePatience} at most
	// limit: edge | requests that wait to record more than 20 matches, all clients | {matchesWaiting}
	matchesWaiting = 1_024
	largePatience  = 2 * time.Second
)

// slices are places for large appends of a type of event. Readers see them once the models
// have them that want the type.
func (a *App) slices(eventType string, waiting int) commands.Slices {
	var models []projector.Projection
	for _, model := range projections.All() {
		if selective, ok := model.(projector.Selective); !ok || selective.Wants(eventType) {
			models = append(models, model)
		}
	}
	pressure := projector.Backpressure{Progress: a.Progress, Projections: models, Ahead: aheadUnread, Most: largePatience}
	return commands.Slices{
		Semaphore: &semaphore.Semaphore{Places: max(largeAppends, runtime.GOMAXPROCS(0)), Half: true, Waiting: waiting},
		Shown:     pressure.Follow,
	}
}
