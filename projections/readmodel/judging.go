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
	// limit: classes | rules of requests that are read, and users that are judged by them, a page of these at a time | one such time a processor, two at least | half of them | {judgingWaits}, {judgingPatience} at most
	judgingWaits    = 1_024
	judgingPatience = 5 * time.Second
)

// Judging are the places in which the rules of requests are read, and users are judged by them. One client
// has half of them. The zero value has as many as are asked for.
type Judging struct{ places *semaphore.Semaphore }

// places are as many as processors when the process began, before serve takes more turns than there are of
// these; two at least, so that one is free where a client holds half.
var places = max(runtime.GOMAXPROCS(0), 2)

// NewJudging makes the places of a process.
func NewJudging() Judging {
	return Judging{&semaphore.Semaphore{Places: places, Half: true, Waiting: judgingWaits, Patience: judgingPatience}}
}

// inNoPlaceKey is the key of InNoPlace in a context.
type inNoPlaceKey struct{}

// InNoPlace has rules read, and users judged, in no place, for what a process does for one client after the
// other: where requests of one hold its places, all the others would wait with it, 5 s at a time.
func InNoPlace(ctx context.Context) context.Context {
	return context.WithValue(ctx, inNoPlaceKey{}, true)
}

// Do reads a rule of a client, or judges some of its users, which is to take no longer than others may wait.
// Faults: overloaded.
func (j Judging) Do(ctx context.Context, client id.Client, judge func() error) error {
	if j.places == nil || ctx.Value(inNoPlaceKey{}) != nil {
		return judge()
	}
	if !j.places.Take(ctx, client.Owner()) {
		return fault.New(fault.Unavailable, "overloaded", "Too many rules are read and judged by at once. Try again.").After(time.Second)
	}
	defer j.places.Give(client.Owner())
	return judge()
}
