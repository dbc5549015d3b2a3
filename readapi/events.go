package readapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/httpapi"
	"kindred/projections"
	"kindred/projections/readmodel"
	"kindred/projections/streams"
)

const (
	// limit: requests | page of events | `limit` 1 to 1,000, and about {readmodel.MaxPage B} | `has_more`
	// limit: requests | `wait` of a pull | 30 s | 422 `invalid`
	defaultEvents = 100
	heartbeat     = 15 * time.Second
)

// ListEvents pulls the events that webhooks tell of, and waits for one where it is
// told to.
func (a *API) ListEvents(ctx context.Context, r httpapi.ListEventsRequestObject) (httpapi.ListEventsResponseObject, error) {
	p := r.Params
	q, err := a.followed(ctx, p.Types, "after", httpapi.Or(p.After, ""), p.Since)
	if err != nil {
		return nil, err
	}
	limit, wait := httpapi.Or(p.Limit, defaultEvents), time.Duration(httpapi.Or(p.Wait, 0))*time.Second
	var found []projections.PublicEvent
	newest := httpapi.Or(p.Order, httpapi.OrderAsc) == httpapi.OrderDesc
	if newest && wait > 0 {
		return nil, fault.NewInvalid(fault.Field{Pointer: "wait", Detail: "is for events in their order: none comes behind the oldest"})
	}
	if wait == 0 {
		model := projections.PublicEvents{Reader: a.Reader}
		_, eventual := asked(ctx)
		found, err = model.List(ctx, q.Client, eventual, projections.PublicQuery{
			Since: q.Since, Types: q.Types, Newest: newest,
			Page: readmodel.Page{After: q.After, Limit: limit + 1}, // one more tells whether there are more
		})
	} else {
		found, err = a.Streams.Await(ctx, q, limit+1, wait)
	}
	if err != nil && !errors.Is(err, httpapi.ErrStopping) {
		return nil, err
	}
	fitting := readmodel.Fitting(found[:min(len(found), limit)], (*projections.PublicEvent).Size)
	answer := httpapi.EventList{HasMore: fitting < len(found), LastID: []byte("null"), Events: make([][]byte, fitting)}
	if after := httpapi.Or(p.After, ""); after != "" {
		answer.LastID = strconv.AppendQuote(nil, after)
	}
	for i, e := range found[:fitting] {
		answer.Events[i] = listed(e)
		answer.LastID = strconv.AppendQuote(nil, string(e.ID))
	}
	return answer, nil
}

// FollowEvents follows the events that webhooks tell of.
func (a *API) FollowEvents(ctx context.Context, r httpapi.FollowEventsRequestObject) (httpapi.FollowEventsResponseObject, error) {
	p := r.Params
	from, after := "after", httpapi.Or(p.After, "")
	if last := httpapi.Or(p.LastEventID, ""); last != "" {
		from, after = "Last-Event-ID", last // of a reader that connects again
	}
	q, err := a.followed(ctx, p.Types, from, after, p.Since)
	if err != nil {
		return nil, err
	}
	return httpapi.EventStream{Context: ctx, Write: func(w io.Writer) error {
		return a.Streams.Follow(ctx, q, heartbeat, func(events []projections.PublicEvent) error {
			_, err := w.Write(streamed(events))
			return err
		})
	}}, nil
}

// followed reads what a caller wants to be told; from names the parameter that holds after.
func (a *API) followed(ctx context.Context, types []httpapi.EventType, from, after string, since *time.Time) (q streams.Query, err error) {
	client, eventual := asked(ctx)
	q = streams.Query{Client: client, Since: httpapi.Or(since, time.Time{}), Types: each(types, func(t httpapi.EventType) string { return string(t) })}
	if after == "" {
		return q, nil
	}
	of, err := id.Parse[id.Event](after)
	if err != nil {
		return q, fault.NewInvalid(fault.Field{Pointer: from, Detail: "must be the id of an event, evt_…"})
	}
	at, ok, err := projections.PublicEvents{Reader: a.Reader}.Place(ctx, client, eventual, of)
	if err == nil && !ok {
		err = fault.NewInvalid(fault.Field{Pointer: from, Detail: "is no event of yours that webhooks tell of"})
	}
	q.After = at
	return q, err
}

// listed is an event in a list: its id, and then its body.
func listed(e projections.PublicEvent) []byte {
	return append(append(append(append([]byte(`{"id":"`), e.ID...), `",`...), e.Body[1:len(e.Body)-1]...), ending(e)...)
}

// ending closes a body, and says what it does not as webhooks send it.
func ending(e projections.PublicEvent) string {
	if e.Erased {
		return `,"erased":true}`
	}
	return "}"
}

// streamed is events as Server-Sent Events; none is a heartbeat. A body is JSON in
// one line.
func streamed(events []projections.PublicEvent) []byte {
	if len(events) == 0 {
		return []byte(":\n\n")
	}
	var out []byte
	for _, e := range events {
		out = fmt.Appendf(out, "id: %s\ndata: %s%s\n\n", e.ID, e.Body[:len(e.Body)-1], ending(e))
	}
	return out
}
