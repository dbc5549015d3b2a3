package writeapi

import (
	"context"

	"kindred/commands"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/httpapi"
)

// CreateConsentLayer makes a consent layer.
func (a *API) CreateConsentLayer(ctx context.Context, r httpapi.CreateConsentLayerRequestObject) (httpapi.CreateConsentLayerResponseObject, error) {
	layer, err := a.Commands.DefineConsentLayer(ctx, call(ctx), r.Body.Name, r.Body.TraitPaths, httpapi.Or(r.Body.MatchRule, ""))
	if err != nil {
		return nil, err
	}
	return httpapi.CreateConsentLayer201JSONResponse{
		Body: layerBody(layer),
		Headers: httpapi.CreateConsentLayer201ResponseHeaders{
			Location: "/api/v1/consent_layers/" + string(layer.ID),
			ETag:     etag(layer.Outcome), XKindredPosition: position(layer.Outcome),
		},
	}, nil
}

// ChangeConsentLayer changes a layer's name or its paths.
func (a *API) ChangeConsentLayer(ctx context.Context, r httpapi.ChangeConsentLayerRequestObject) (httpapi.ChangeConsentLayerResponseObject, error) {
	layer, err := httpapi.Named[id.ConsentLayer](r.ConsentLayerID, fault.UnknownConsentLayer)
	if err != nil {
		return nil, err
	}
	changed, err := a.Commands.ChangeConsentLayer(ctx, call(ctx), layer, r.Body.Name, httpapi.Or(r.Body.TraitPaths, nil), orZero(r.Body.MatchRule))
	if err != nil {
		return nil, err
	}
	body := layerBody(changed)
	if body.MatchRuleBlockedBy, err = a.matchRuleBlocks(ctx, changed.MatchRule, true, changed.TraitPaths); err != nil {
		return nil, err
	}
	return httpapi.ChangeConsentLayer200JSONResponse{
		Body: body,
		Headers: httpapi.ChangeConsentLayer200ResponseHeaders{
			ETag: etag(changed.Outcome), XKindredPosition: position(changed.Outcome),
		},
	}, nil
}

// RetireConsentLayer ends a layer.
func (a *API) RetireConsentLayer(ctx context.Context, r httpapi.RetireConsentLayerRequestObject) (httpapi.RetireConsentLayerResponseObject, error) {
	layer, err := httpapi.Named[id.ConsentLayer](r.ConsentLayerID, fault.UnknownConsentLayer)
	if err != nil {
		return nil, err
	}
	outcome, err := a.Commands.RetireConsentLayer(ctx, call(ctx), layer)
	if err != nil {
		return nil, err
	}
	return httpapi.RetireConsentLayer204Response{
		Headers: httpapi.RetireConsentLayer204ResponseHeaders{XKindredPosition: position(outcome)},
	}, nil
}

// GrantConsents records that users have granted a layer.
func (a *API) GrantConsents(ctx context.Context, r httpapi.GrantConsentsRequestObject) (httpapi.GrantConsentsResponseObject, error) {
	consents, at, err := a.changeConsents(ctx, r.ConsentLayerID, true, r.Body)
	if err != nil {
		return nil, err
	}
	return httpapi.GrantConsents200JSONResponse{
		Body: consents, Headers: httpapi.GrantConsents200ResponseHeaders{XKindredPosition: at},
	}, nil
}

// WithdrawConsents records that users have withdrawn their consent.
func (a *API) WithdrawConsents(ctx context.Context, r httpapi.WithdrawConsentsRequestObject) (httpapi.WithdrawConsentsResponseObject, error) {
	consents, at, err := a.changeConsents(ctx, r.ConsentLayerID, false, r.Body)
	if err != nil {
		return nil, err
	}
	return httpapi.WithdrawConsents200JSONResponse{
		Body: consents, Headers: httpapi.WithdrawConsents200ResponseHeaders{XKindredPosition: at},
	}, nil
}

func (a *API) changeConsents(ctx context.Context, ref string, grant bool, body *httpapi.ConsentsChange) (done httpapi.ConsentsChanged, at *string, err error) {
	layer, err := httpapi.Named[id.ConsentLayer](ref, fault.UnknownConsentLayer)
	if err != nil {
		return done, nil, err
	}
	in := commands.ChangeConsents{Layer: layer, Grant: grant, All: body.All != nil, Source: body.Source}
	for _, user := range body.UserIds {
		in.Users = append(in.Users, commands.UserRef(user))
	}
	consents, err := a.Commands.ChangeConsents(ctx, call(ctx), in)
	if err != nil {
		return done, nil, err
	}
	return httpapi.ConsentsChanged{Changed: consents.Changed, Unchanged: consents.Unchanged}, positionIfAny(consents.Position), nil
}

// GrantConsent records that one user has granted a layer.
func (a *API) GrantConsent(ctx context.Context, r httpapi.GrantConsentRequestObject) (httpapi.GrantConsentResponseObject, error) {
	in := commands.ChangeConsents{Grant: true, Users: []commands.UserRef{commands.UserRef(r.UserID)}}
	if r.Body != nil {
		in.Source = r.Body.Source
	}
	at, err := a.changeConsent(ctx, r.ConsentLayerID, in)
	if err != nil {
		return nil, err
	}
	return httpapi.GrantConsent204Response{Headers: httpapi.GrantConsent204ResponseHeaders{XKindredPosition: at}}, nil
}

// WithdrawConsent records that one user has withdrawn consent.
func (a *API) WithdrawConsent(ctx context.Context, r httpapi.WithdrawConsentRequestObject) (httpapi.WithdrawConsentResponseObject, error) {
	at, err := a.changeConsent(ctx, r.ConsentLayerID, commands.ChangeConsents{Users: []commands.UserRef{commands.UserRef(r.UserID)}})
	if err != nil {
		return nil, err
	}
	return httpapi.WithdrawConsent204Response{Headers: httpapi.WithdrawConsent204ResponseHeaders{XKindredPosition: at}}, nil
}

func (a *API) changeConsent(ctx context.Context, ref string, in commands.ChangeConsents) (*string, error) {
	layer, err := httpapi.Named[id.ConsentLayer](ref, fault.UnknownConsentLayer)
	if err != nil {
		return nil, err
	}
	in.Layer = layer
	outcome, err := a.Commands.ChangeConsent(ctx, call(ctx), in)
	return positionIfAny(outcome.Position), err
}

// matchRuleBlocks is what a match rule, of a layer with some paths or of the client, reads and
// may not any more.
func (a *API) matchRuleBlocks(ctx context.Context, matchRule string, layered bool, paths []string) (blocks []httpapi.SegmentBlock, err error) {
	breaches, err := a.Commands.MatchRuleBreaches(ctx, call(ctx).Client, matchRule, layered, paths)
	for _, b := range breaches {
		blocks = append(blocks, httpapi.SegmentBlock{Cause: httpapi.SegmentBlockCause(b.Cause), Name: b.Name})
	}
	return blocks, err
}

func layerBody(l commands.ConsentLayer) httpapi.ConsentLayer {
	return httpapi.ConsentLayer{
		ID: l.ID, Name: l.Name, TraitPaths: l.TraitPaths, MatchRule: httpapi.OrNull(l.MatchRule),
		CreatedAt: httpapi.Time{Time: l.CreatedAt}, UpdatedAt: httpapi.Time{Time: l.UpdatedAt},
	}
}
