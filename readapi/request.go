package readapi

import (
	"context"
	"strconv"
	"strings"
	"time"

	"kindred/domain/id"
	"kindred/httpapi"
	"kindred/httpapi/requestlog"
)

// ListRequests lists the latest requests of the client.
func (a *API) ListRequests(ctx context.Context, r httpapi.ListRequestsRequestObject) (httpapi.ListRequestsResponseObject, error) {
	client, _ := asked(ctx)
	p := r.Params
	status := httpapi.Or(p.Status, "")
	f := requestlog.Filter{Method: string(httpapi.Or(p.Method, "")), Route: httpapi.Or(p.Route, ""), Key: id.Key(httpapi.Or(p.KeyID, ""))}
	if status != "" { // 404, or 4xx
		f.Least, _ = strconv.Atoi(strings.ReplaceAll(status, "x", "0")) // the contract has checked it
		f.Most, _ = strconv.Atoi(strings.ReplaceAll(status, "x", "9"))
	}
	list := filtered("requests", status, f.Method, f.Route, string(f.Key))
	below := requestlog.Place{}
	if p.Cursor != nil {
		place, err := a.Cursors.Decode(client, list, *p.Cursor)
		if err != nil {
			return nil, err
		}
		at, request, _ := strings.Cut(place, " ")
		below.ID = id.Request(request)
		if below.At, err = time.Parse(time.RFC3339Nano, at); err != nil {
			return nil, errCursor()
		}
	}
	found, more, err := a.Requests.List(ctx, client, f, below, httpapi.PageSize(p.Limit))
	if err != nil {
		return nil, err
	}
	omitted, err := a.Requests.Omitted(ctx, client)
	if err != nil {
		return nil, err
	}
	answer := httpapi.ListRequests200JSONResponse{Omitted: omitted, Data: each(found, func(one httpapi.Answered) httpapi.LoggedRequest {
		return httpapi.LoggedRequest{
			RequestID: string(one.ID), At: httpapi.Time{Time: one.At}, Method: httpapi.RequestMethod(one.Method), Route: one.Route, Status: one.Status,
			DurationMs: float64(one.Duration.Microseconds()) / 1000, KeyID: httpapi.OrNull(string(one.Key)),
		}
	})}
	if more != nil {
		answer.NextCursor = new(a.Cursors.Encode(client, list, more.At.UTC().Format(time.RFC3339Nano)+" "+string(more.ID)))
	}
	return answer, nil
}
