package writeapi

import (
	"context"

	"kindred/domain/fault"
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
