package readmodel

import (
	"context"
	"runtime"
	"time"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/semaphore"
)

const (
	// limit: classes | users that are judged by rules of requests, a page of them at a time | one such time a processor | half of them | {judgingWaits}, {judgingPatience} at most
	judgingWaits    = 1_024
	judgingPatience = 5 * time.Second
)

// Judging are the places in which users are judged by the rules of requests: one for each
// processor, of which one client has half. The zero value has as many as are asked for.
type Judging struct{ places *semaphore.Semaphore }

// NewJudging makes the places of a process.
func NewJudging() Judging {
	return Judging{&semaphore.Semaphore{Places: runtime.GOMAXPROCS(0), Half: true, Waiting: judgingWaits, Patience: judgingPatience}}
}

// Do judges some users of a client, which is to take no longer than others may wait.
// Faults: overloaded.
func (j Judging) Do(ctx context.Context, client id.Client, judge func() error) error {
	if j.places == nil {
		return judge()
	}
	if !j.places.Take(ctx, client.Owner()) {
		return fault.New(fault.Unavailable, "overloaded", "Too many users are judged by rules at once. Try again.").After(time.Second)
	}
	defer j.places.Give(client.Owner())
	return judge()
}
