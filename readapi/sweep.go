package readapi

import (
	"context"

	"kindred/httpapi"
)

// GetSweep shows how far automatic matching has come.
func (a *API) GetSweep(ctx context.Context, _ httpapi.GetSweepRequestObject) (httpapi.GetSweepResponseObject, error) {
	client, eventual := asked(ctx)
	s, err := a.MatchQueue.Sweep(ctx, client, eventual)
	if err != nil {
		return nil, err
	}
	body := httpapi.GetSweep200JSONResponse{State: httpapi.SweepIdle, Pending: s.Pending, Done: s.Done, Recorded: s.Recorded}
	if s.Pending > 0 {
		body.State = httpapi.SweepRunning
		if s.BeganAt != nil {
			body.BeganAt = &httpapi.Time{Time: *s.BeganAt}
		}
		if s.Left > 0 {
			left := s.Left.Seconds()
			body.EtaSeconds = &left
		}
	}
	return body, nil
}
