package readapi

import (
	"context"
	"math"
	"slices"
	"strconv"

	"kindred/eventstore"
	"kindred/httpapi"
	"kindred/projections"
	"kindred/projections/auditing"
)

// GetTimeline shows what happened to a user, the newest first.
func (a *API) GetTimeline(ctx context.Context, r httpapi.GetTimelineRequestObject) (httpapi.GetTimelineResponseObject, error) {
	client, eventual := asked(ctx)
	user, err := a.user(ctx, r.UserID)
	if err != nil {
		return nil, err
	}
	list := filtered("timeline", string(user))
	page, err := a.page(client, list, r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	below := int64(math.MaxInt64)
	if page.After != eventstore.Start {
		if below, err = strconv.ParseInt(string(page.After), 10, 64); err != nil {
			return nil, errCursor()
		}
	}
	found, err := a.History.Timeline(ctx, client, eventual, user, below, page.Limit)
	if err != nil {
		return nil, err
	}
	found, next := cut(a, client, list, page, found, nil, func(h auditing.Happening) eventstore.Position {
		return eventstore.Position(strconv.FormatInt(h.Ordinal, 10))
	})
	return httpapi.GetTimeline200JSONResponse{Data: each(found, happeningBody), NextCursor: next}, nil
}

func happeningBody(h auditing.Happening) httpapi.TimelineEntry {
	body := httpapi.TimelineEntry{
		EventID: string(h.Event), Ordinal: h.Ordinal, Type: h.Type, Actor: h.Actor, RecordedAt: httpapi.Time{Time: h.At},
		ConsentLayerID: httpapi.OrNull(h.Layer), CampaignID: httpapi.OrNull(h.Campaign), MatchedUserID: httpapi.OrNull(h.Other),
		ItemID: httpapi.OrNull(h.Item), Kind: httpapi.OrNull(h.Kind),
	}
	if h.Changed != nil {
		body.ChangedTraits = h.Changed
	}
	return body
}

// GetMemberships shows which clusters and consent layers a user is in.
func (a *API) GetMemberships(ctx context.Context, r httpapi.GetMembershipsRequestObject) (httpapi.GetMembershipsResponseObject, error) {
	client, eventual := asked(ctx)
	user, err := a.userThere(ctx, r.UserID)
	if err != nil {
		return nil, err
	}
	clusters, err := projections.Clusters{Reader: a.Reader}.OfUser(ctx, client, eventual, user)
	if err != nil {
		return nil, err
	}
	clusters = slices.DeleteFunc(clusters, func(c projections.Cluster) bool { return c.Segment != "" }) // one of a layer at most
	layers, err := projections.Consent{Reader: a.Reader}.LayersOf(ctx, client, eventual, user)
	if err != nil {
		return nil, err
	}
	return httpapi.GetMemberships200JSONResponse{
		UserID: user,
		Clusters: each(clusters, func(c projections.Cluster) httpapi.ClusterMembership {
			return httpapi.ClusterMembership{ClusterID: c.ID, ConsentLayerID: c.Layer, ClusteringRunID: c.Run, Label: c.Label}
		}),
		ConsentLayers: each(layers, func(l projections.LayerOfUser) httpapi.LayerMembership {
			return httpapi.LayerMembership{ConsentLayerID: l.Layer, Name: l.Name, Status: consentStatus(l.Granted), ChangedAt: httpapi.Time{Time: l.ChangedAt}}
		}),
	}, nil
}
