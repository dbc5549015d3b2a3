package writeapi

import (
	"context"
	"fmt"

	"kindred/commands"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/httpapi"
)

// RecordInteraction records what a user did about an item of the feed.
func (a *API) RecordInteraction(ctx context.Context, r httpapi.RecordInteractionRequestObject) (httpapi.RecordInteractionResponseObject, error) {
	c, body := call(ctx), r.Body
	in := commands.Interact{User: commands.UserRef(r.UserID), Item: httpapi.Or(body.ItemID, ""), Kind: string(body.Type)}
	if (body.ItemID == nil) == (body.ImpressionID == nil) {
		return nil, fault.NewInvalid(fault.Field{Pointer: "/item_id", Detail: "is needed where no impression_id is given, and only there"})
	}
	if body.ImpressionID != nil {
		if err := a.readImpression(ctx, c, *body.ImpressionID, &in); err != nil {
			return nil, err
		}
	}
	done, err := a.Commands.Interact(ctx, c, in)
	if err != nil {
		return nil, err
	}
	return httpapi.RecordInteraction200JSONResponse{
		Body: httpapi.Interaction{
			UserID: done.User, ItemID: done.Item, ImpressionID: body.ImpressionID,
			Type: httpapi.InteractionType(done.Kind), RecordedAt: httpapi.Time{Time: done.RecordedAt},
		},
		Headers: httpapi.RecordInteraction200ResponseHeaders{XKindredPosition: positionIfAny(done.Position)},
	}, nil
}

// readImpression finds out what an impression id of the feed is about: that of
// a campaign is recorded under it, any other one says so itself.
func (a *API) readImpression(ctx context.Context, c commands.Call, impression string, in *commands.Interact) error {
	if _, err := id.Parse[id.Impression](impression); err == nil {
		in.Impression = impression
		return nil
	}
	user, err := a.Commands.FindUser(ctx, c.Client, in.User)
	if err != nil {
		return err
	}
	shown, err := a.Cursors.DecodeShowing(c.Client, user, impression)
	if err != nil {
		return err
	}
	in.Item, in.Position = shown.Item, shown.Position
	in.Impression = fmt.Sprintf("%s.%d", shown.Feed, shown.Position)
	return nil
}
