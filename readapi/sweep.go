package readapi

import (
	"context"

	"kindred/httpapi"
	"kindred/projections"
)

// GetSweep shows how far automatic matching has come.
func (a *API) GetSweep(ctx context.Context, _ httpapi.GetSweepRequestObject) (httpapi.GetSweepResponseObject, error) {
	client, eventual := asked(ctx)
	now, _, err := a.Clock(ctx, client)
	if err != nil {
		return nil, err
	}
	s, err := projections.MatchQueue{Reader: a.Reader}.Sweep(ctx, client, eventual, now)
	if err != nil {
		return nil, err
	}
	body := httpapi.GetSweep200JSONResponse{State: httpapi.SweepIdle, Pending: s.Pending, Done: s.Done, Recorded: s.Recorded}
	if s.Pending > 0 {
		body.State = httpapi.SweepRunning
		body.BeganAt, body.EtaSeconds = httpapi.TimeOrNull(s.BeganAt), httpapi.OrNull(s.Left.Seconds())
	}
	return body, nil
}
