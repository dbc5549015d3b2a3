package writeapi

import (
	"context"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/httpapi"
)

// CreateSegment makes a segment.
func (a *API) CreateSegment(ctx context.Context, r httpapi.CreateSegmentRequestObject) (httpapi.CreateSegmentResponseObject, error) {
	layer, err := httpapi.NamedIfAny[id.ConsentLayer](r.Body.ConsentLayerID, fault.UnknownConsentLayer)
	if err != nil {
		return nil, err
	}
	made, err := a.Commands.DefineSegment(ctx, call(ctx), r.Body.Name, r.Body.Rule, layer)
	if err != nil {
		return nil, err
	}
	at := httpapi.Time{Time: made.Outcome.Recorded[0].RecordedAt}
	return httpapi.CreateSegment201JSONResponse{
		Body: httpapi.Segment{
			ID: made.ID, Name: r.Body.Name, Rule: r.Body.Rule, State: httpapi.SegmentBuilding, ConsentLayerID: httpapi.OrNull(layer), CreatedAt: at, UpdatedAt: at,
		},
		Headers: httpapi.CreateSegment201ResponseHeaders{
			Location: "/api/v1/segments/" + string(made.ID), ETag: httpapi.ETag(int64(made.Changed)), XKindredPosition: position(made.Outcome),
		},
	}, nil
}

// ChangeSegment renames a segment, or gives it another rule.
func (a *API) ChangeSegment(ctx context.Context, r httpapi.ChangeSegmentRequestObject) (httpapi.ChangeSegmentResponseObject, error) {
	segment, err := httpapi.Named[id.Segment](r.SegmentID, fault.UnknownSegment)
	if err != nil {
		return nil, err
	}
	changed, err := a.Commands.ChangeSegment(ctx, call(ctx), segment, r.Body.Name, r.Body.Rule)
	if err != nil {
		return nil, err
	}
	return httpapi.ChangeSegment204Response{Headers: httpapi.ChangeSegment204ResponseHeaders{
		ETag: httpapi.ETag(int64(changed.Changed)), XKindredPosition: position(changed.Outcome),
	}}, nil
}

// RetireSegment ends a segment.
func (a *API) RetireSegment(ctx context.Context, r httpapi.RetireSegmentRequestObject) (httpapi.RetireSegmentResponseObject, error) {
	segment, err := httpapi.Named[id.Segment](r.SegmentID, fault.UnknownSegment)
	if err != nil {
		return nil, err
	}
	outcome, err := a.Commands.RetireSegment(ctx, call(ctx), segment)
	if err != nil {
		return nil, err
	}
	return httpapi.RetireSegment204Response{Headers: httpapi.RetireSegment204ResponseHeaders{XKindredPosition: position(outcome)}}, nil
}
