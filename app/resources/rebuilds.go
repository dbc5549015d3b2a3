package resources

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/httpapi"
)

// Projections puts how the read models do into the words of the contract.
type Projections struct {
	Jobs    projector.Jobs
	Now     func() time.Time
	Entropy io.Reader
}

// List implements [readapi.Projections].
func (m Projections) List(ctx context.Context, client id.Client) ([]httpapi.Projection, error) {
	statuses, err := projector.List(ctx, m.Jobs.Runner.Pool)
	if err != nil {
		return nil, err
	}
	quarantines, err := projector.QuarantinesOf(ctx, m.Jobs.Runner.Pool, client)
	if err != nil {
		return nil, err
	}
	leftOut, err := projector.LeftOutOf(ctx, m.Jobs.Runner.Pool, client)
	if err != nil {
		return nil, err
	}
	newest, err := m.Jobs.Newest(ctx, client)
	if err != nil {
		return nil, err
	}
	list := make([]httpapi.Projection, 0, len(m.Jobs.Models))
	for _, model := range m.Jobs.Models {
		p := httpapi.Projection{Name: model.Name(), LeftOutEvents: leftOut[projector.ID(model)]}
		var at eventstore.Position
		if i := slices.IndexFunc(statuses, func(s projector.Status) bool { return s.Name == projector.ID(model) }); i >= 0 {
			at, p.Led = statuses[i].Position, statuses[i].Leader != ""
		}
		p.Position = string(at)
		if p.LagSeconds, err = m.lag(ctx, at); err != nil {
			return nil, fmt.Errorf("read the lag of %s: %w", model.Name(), err)
		}
		if q, stopped := quarantines[projector.ID(model)]; stopped {
			p.Quarantined = &httpapi.ProjectionQuarantine{EventID: string(q.Event), Position: string(q.Position), Since: httpapi.Time{Time: q.At}}
		}
		if job, asked := newest[model.Name()]; asked {
			body := rebuildBody(job)
			p.Rebuild = &body
		}
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b httpapi.Projection) int { return cmp.Compare(a.Name, b.Name) })
	return list, nil
}

// lag is the age of the first event after a position.
func (m Projections) lag(ctx context.Context, at eventstore.Position) (float64, error) {
	waits, err := m.Jobs.Runner.Log.Store.ReadAll(ctx, at, 1)
	if err != nil || len(waits) == 0 {
		return 0, err
	}
	return max(0, m.Now().Sub(waits[0].RecordedAt).Seconds()), nil
}

// Request implements [writeapi.Rebuilds].
// Faults: projection_shared, projection_unknown, rebuild_in_progress, rebuilt_recently.
func (m Projections) Request(ctx context.Context, client id.Client, projection, by string, seed []string) (httpapi.Rebuild, error) {
	ids := id.Random(m.Entropy)
	if seed != nil {
		ids = id.Derived(append(slices.Clone(seed), "rebuild", projection)...)
	}
	job, err := m.Jobs.Request(ctx, id.Next[id.Rebuild](ids), projection, client, by)
	return rebuildBody(job), err
}

func rebuildBody(j projector.Job) httpapi.Rebuild {
	return httpapi.Rebuild{
		ID: string(j.ID), Projection: j.Model, Phase: j.Phase, Done: j.Done, Total: j.Total, EventsPerSecond: j.Rate, EtaSeconds: j.SecondsLeft,
		RequestedBy: j.RequestedBy, RequestedAt: httpapi.Time{Time: j.RequestedAt}, EndedAt: httpapi.TimeOrNull(j.EndedAt), Error: j.Error,
	}
}
