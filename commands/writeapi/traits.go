package writeapi

import (
	"context"
	"slices"

	"kindred/commands"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/httpapi"
)

// ChangeTraits takes over what the client decides about its traits.
func (a *API) ChangeTraits(ctx context.Context, r httpapi.ChangeTraitsRequestObject) (httpapi.ChangeTraitsResponseObject, error) {
	c := call(ctx)
	outcome, err := a.Commands.OverrideTraits(ctx, c, r.Body.Traits)
	if err != nil {
		return nil, err
	}
	var body httpapi.TraitSchema
	var tag string
	err = fault.Await(ctx, func(ctx context.Context) (err error) { // here, since it is recorded
		body, tag, err = a.TraitSchema(ctx, c.Client)
		return err
	})
	if err != nil {
		return nil, err
	}
	if !mayRead(ctx) {
		for i := range body.Traits {
			body.Traits[i].Levels = []string{} // the values of users
		}
	}
	return httpapi.ChangeTraits200JSONResponse{
		Body:    body,
		Headers: httpapi.ChangeTraits200ResponseHeaders{ETag: tag, XKindredPosition: positionIfAny(outcome.Position)},
	}, nil
}

const defaultPreview = 10

// PreviewTraits shows what a decision about traits would do to the matches of a user.
func (a *API) PreviewTraits(ctx context.Context, r httpapi.PreviewTraitsRequestObject) (httpapi.PreviewTraitsResponseObject, error) {
	layer, err := httpapi.NamedIfAny[id.ConsentLayer](r.Body.ConsentLayerID, fault.UnknownConsentLayer)
	if err != nil {
		return nil, err
	}
	c := call(ctx)
	before, after, err := a.Commands.PreviewTraits(ctx, c, commands.PreviewTraits{
		User: commands.UserRef(r.Body.UserID), Patch: r.Body.Traits, Limit: httpapi.Or(r.Body.Limit, defaultPreview), Layer: layer,
	})
	if err != nil {
		return nil, err
	}
	names, err := a.named(ctx, c.Client, slices.Concat(before, after))
	if err != nil {
		return nil, err
	}
	answer := httpapi.PreviewTraits200JSONResponse{
		Before: computed(before, names, mayRead(ctx)),
		After:  computed(after, names, mayRead(ctx)),
	}
	for i := range answer.After {
		answer.After[i].Percentile = nil // of no distribution that there is
	}
	return answer, nil
}
