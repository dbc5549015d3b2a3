package writeapi

import (
	"context"

	"kindred/httpapi"
)

// ChangeTraits takes over what the client decides about its traits.
func (a *API) ChangeTraits(ctx context.Context, r httpapi.ChangeTraitsRequestObject) (httpapi.ChangeTraitsResponseObject, error) {
	c := call(ctx)
	outcome, err := a.Commands.OverrideTraits(ctx, c, r.Body.Traits)
	if err != nil {
		return nil, err
	}
	body, tag, err := a.TraitSchema(ctx, c.Client)
	if err != nil {
		return nil, err
	}
	return httpapi.ChangeTraits200JSONResponse{
		Body:    body,
		Headers: httpapi.ChangeTraits200ResponseHeaders{ETag: tag, XKindredPosition: positionIfAny(outcome.Position)},
	}, nil
}
