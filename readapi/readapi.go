// Package readapi answers the HTTP requests that change nothing. Each handler
// asks one read model, which has seen every write that was acknowledged
// before, and writes down what it says.
package readapi

import (
	"context"
	"strings"
	"time"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/httpapi"
	"kindred/httpapi/requestlog"
	"kindred/projections"
	"kindred/projections/auditing"
	"kindred/projections/feeds"
	"kindred/projections/populations"
	"kindred/projections/readmodel"
	"kindred/projections/streams"
	"kindred/projections/travel"
)

// API is the reading half of the generated server interface.
type API struct {
	Reader      readmodel.Reader  // of all read models
	Users       projections.Users // which gathers requests for one user
	Populations *populations.Populations
	RunMaps     *projections.RunMaps
	Assigner    projections.Assigner

	History         *auditing.Auditor
	Streams         *streams.Streams
	States          *travel.Traveller
	Feeds           *feeds.Feeds
	Deliveries      Deliveries
	Imports         Imports
	Requests        *requestlog.Log
	Projections     Projections
	Cursors         httpapi.Cursors
	DefaultSettings event.Settings // of a client that has chosen none
	Now             func() time.Time
	// Clock is what a client's clock says, and how far that is ahead of Now.
	Clock func(ctx context.Context, client id.Client) (now time.Time, ahead time.Duration, err error)
}

// asked is what every read needs of its request.
func asked(ctx context.Context) (client id.Client, eventual bool) {
	return httpapi.PrincipalFrom(ctx).Client, httpapi.CallFrom(ctx).Eventual
}

// get reads what a request names.
func get[T id.Typed, R any](ctx context.Context, ref string, unknown func() *fault.Fault,
	from func(context.Context, id.Client, bool, T) (R, error),
) (found R, err error) {
	client, eventual := asked(ctx)
	named, err := httpapi.Named[T](ref, unknown)
	if err != nil {
		return found, err
	}
	return from(ctx, client, eventual, named)
}

// eventually is the context of a request that waits for no more of its client's writes.
func eventually(ctx context.Context) context.Context {
	call := httpapi.CallFrom(ctx)
	call.Eventual = true
	return httpapi.With(ctx, httpapi.PrincipalFrom(ctx), call)
}

// list answers with a page of a list: what find finds from where the page before ended, in
// the words of the contract as body writes them. place is where an item stands in the list.
func list[M, C any](
	ctx context.Context, a *API, name string, limit *httpapi.Limit, cursor *httpapi.Cursor,
	find func(context.Context, id.Client, bool, readmodel.Page) ([]M, error),
	place func(M) eventstore.Position, body func(M) C,
) (data []C, next *httpapi.NextCursor, err error) {
	client, eventual := asked(ctx)
	page, err := a.page(client, name, limit, cursor)
	if err != nil {
		return nil, nil, err
	}
	found, err := find(ctx, client, eventual, page)
	if err != nil {
		return nil, nil, err
	}
	found, next = cut(a, client, name, page, found, nil, place)
	return each(found, body), next, nil
}

// page reads the limit and the cursor of a list. The list's name holds its
// filters, so that a cursor fits no other list.
func (a *API) page(client id.Client, list string, limit *httpapi.Limit, cursor *httpapi.Cursor) (readmodel.Page, error) {
	// One more than is asked for tells whether there is another page.
	page := readmodel.Page{Limit: httpapi.PageSize(limit) + 1}
	if cursor == nil {
		return page, nil
	}
	after, err := a.Cursors.Decode(client, list, *cursor)
	page.After = eventstore.Position(after)
	return page, err
}

// cut splits off the items that do not fit, and the one that only tells that there is another
// page, and makes the cursor of that page: the place of the last item that is left. size is
// nil where items are small.
func cut[T any](a *API, client id.Client, list string, page readmodel.Page, found []T, size func(*T) int,
	place func(T) eventstore.Position,
) ([]T, *string) {
	fitting := readmodel.Fitting(found[:min(len(found), page.Limit-1)], size)
	if fitting == len(found) {
		return found, nil
	}
	found = found[:fitting]
	next := a.Cursors.Encode(client, list, string(place(found[len(found)-1])))
	return found, &next
}

// filtered names a list by what it is filtered by.
func filtered(list string, filters ...string) string {
	return list + "?" + strings.Join(filters, "&")
}

// each turns what a model holds into what the contract says.
func each[M, C any](found []M, turn func(M) C) []C {
	out := make([]C, len(found))
	for i, m := range found {
		out[i] = turn(m)
	}
	return out
}

func errCursor() error {
	return fault.New(fault.Unreadable, "bad_cursor", "The cursor is not of this list.")
}
