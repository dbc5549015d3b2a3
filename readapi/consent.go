package readapi

import (
	"context"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/domain/rule"
	"kindred/eventstore"
	"kindred/httpapi"
	"kindred/projections"
	"kindred/projections/readmodel"
)

// ListConsentLayers lists the consent layers of the client.
func (a *API) ListConsentLayers(ctx context.Context, r httpapi.ListConsentLayersRequestObject) (httpapi.ListConsentLayersResponseObject, error) {
	data, next, err := list(ctx, a, "consent_layers", r.Params.Limit, r.Params.Cursor, projections.Consent{Reader: a.Reader}.Layers,
		func(l projections.ConsentLayer) eventstore.Position { return l.CreatedPosition }, layerBody)
	for i := 0; i < len(data) && err == nil; i++ {
		l := &data[i]
		l.MatchRuleBlockedBy, err = a.matchRuleBlocks(ctx, httpapi.Or(l.MatchRule, ""), projections.ConsentLayer{ID: l.ID, TraitPaths: l.TraitPaths})
	}
	return httpapi.ListConsentLayers200JSONResponse{Data: data, NextCursor: next}, err
}

// GetConsentLayer shows a consent layer.
func (a *API) GetConsentLayer(ctx context.Context, r httpapi.GetConsentLayerRequestObject) (httpapi.GetConsentLayerResponseObject, error) {
	layer, err := a.layer(ctx, r.ConsentLayerID)
	if err != nil {
		return nil, err
	}
	body := layerBody(layer)
	if body.MatchRuleBlockedBy, err = a.matchRuleBlocks(ctx, layer.MatchRule, layer); err != nil {
		return nil, err
	}
	return httpapi.GetConsentLayer200JSONResponse{
		Body:    body,
		Headers: httpapi.GetConsentLayer200ResponseHeaders{ETag: httpapi.ETag(int64(layer.Revision))},
	}, nil
}

// matchRuleBlocks is what the match rule of a layer, or of the client, reads and may not.
func (a *API) matchRuleBlocks(ctx context.Context, matchRule string, layer projections.ConsentLayer) ([]httpapi.SegmentBlock, error) {
	if matchRule == "" {
		return nil, nil
	}
	bounds, err := a.bounds(ctx, layer)
	if err != nil {
		return nil, err
	}
	client, _ := asked(ctx)
	var breaches []rule.Breach
	err = a.Reader.Judging.Do(ctx, client, func() (err error) {
		breaches, err = rule.MatchBreaches(matchRule, bounds)
		return err
	})
	return each(breaches, func(b rule.Breach) httpapi.SegmentBlock {
		return httpapi.SegmentBlock{Cause: httpapi.SegmentBlockCause(b.Cause), Name: b.Name}
	}), err
}

// ListConsents lists the users who have granted a layer.
func (a *API) ListConsents(ctx context.Context, r httpapi.ListConsentsRequestObject) (httpapi.ListConsentsResponseObject, error) {
	layer, err := a.layer(ctx, r.ConsentLayerID)
	if err != nil {
		return nil, err
	}
	status := httpapi.Or(r.Params.Status, httpapi.ConsentFilterGranted)
	data, next, err := list(ctx, a, filtered("consents", string(layer.ID), string(status)), r.Params.Limit, r.Params.Cursor,
		func(ctx context.Context, client id.Client, eventual bool, page readmodel.Page) ([]projections.UserConsent, error) {
			return projections.Consent{Reader: a.Reader}.Consents(ctx, client, eventual, layer.ID, status == httpapi.ConsentFilterGranted, page)
		}, func(c projections.UserConsent) eventstore.Position { return c.Changed }, consentingBody)
	return httpapi.ListConsents200JSONResponse{Data: data, NextCursor: next}, err
}

func consentingBody(c projections.UserConsent) httpapi.ConsentingUser {
	return httpapi.ConsentingUser{
		UserID: c.User, ExternalID: c.ExternalID, Status: consentStatus(c.Granted), ChangedAt: httpapi.Time{Time: c.ChangedAt},
	}
}

// GetConsent shows what a user has said under a layer.
func (a *API) GetConsent(ctx context.Context, r httpapi.GetConsentRequestObject) (httpapi.GetConsentResponseObject, error) {
	client, eventual := asked(ctx)
	layer, err := a.layer(ctx, r.ConsentLayerID)
	if err != nil {
		return nil, err
	}
	user, err := a.user(ctx, r.UserID)
	if err != nil {
		return nil, err
	}
	found, err := a.Users.Get(ctx, client, eventual, user)
	if err != nil {
		return nil, err
	}
	history, err := projections.Consent{Reader: a.Reader}.ConsentHistory(ctx, client, eventual, layer.ID, user)
	if err != nil {
		return nil, err
	}
	body := httpapi.UserConsent{
		ConsentLayerID: layer.ID, UserID: user, ExternalID: found.ExternalID, Status: httpapi.ConsentNone,
		History: each(history, func(e projections.ConsentEntry) httpapi.ConsentEntry {
			return httpapi.ConsentEntry{
				Status: consentStatus(e.Granted), Source: e.Source, Actor: e.Actor, At: httpapi.Time{Time: e.At},
			}
		}),
	}
	if len(history) > 0 {
		body.Status, body.ChangedAt = body.History[0].Status, &body.History[0].At
	}
	return httpapi.GetConsent200JSONResponse(body), nil
}

// layer reads a layer that is there.
func (a *API) layer(ctx context.Context, ref string) (projections.ConsentLayer, error) {
	return get(ctx, ref, fault.UnknownConsentLayer, projections.Consent{Reader: a.Reader}.Layer)
}

func consentStatus(granted bool) httpapi.ConsentStatus {
	if granted {
		return httpapi.ConsentGranted
	}
	return httpapi.ConsentWithdrawn
}

func layerBody(l projections.ConsentLayer) httpapi.ConsentLayer {
	return httpapi.ConsentLayer{
		ID: l.ID, Name: l.Name, TraitPaths: l.TraitPaths, MatchRule: httpapi.OrNull(l.MatchRule),
		CreatedAt: httpapi.Time{Time: l.CreatedAt}, UpdatedAt: httpapi.Time{Time: l.UpdatedAt},
	}
}
