package writeapi

import (
	"context"
	"time"

	"kindred/commands"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/httpapi"
)

// Deliveries makes deliveries that are asked for by hand. They go through the
// dispatcher's queue; the log hears how they end. A seed names a request that
// may be repeated.
type Deliveries interface {
	// Follow waits, 2 s at most, until deliveries to a webhook go by what was
	// recorded of it.
	Follow(ctx context.Context, client id.Client, webhook id.Webhook)
	Test(ctx context.Context, client id.Client, webhook id.Webhook, eventType string, seed []string) (httpapi.Delivery, error)
	Redeliver(ctx context.Context, client id.Client, webhook id.Webhook, delivery id.Delivery, seed []string) (httpapi.Delivery, error)
	Recover(ctx context.Context, client id.Client, webhook id.Webhook, since time.Time, seed []string) (httpapi.Recovery, error)
}

// TestWebhook delivers an event that never happened.
func (a *API) TestWebhook(ctx context.Context, r httpapi.TestWebhookRequestObject) (httpapi.TestWebhookResponseObject, error) {
	webhook, err := httpapi.Named[id.Webhook](r.WebhookID, fault.UnknownWebhook)
	if err != nil {
		return nil, err
	}
	c := call(ctx)
	made, err := a.Deliveries.Test(ctx, c.Client, webhook, string(r.Body.EventType), c.Seed)
	if err != nil {
		return nil, err
	}
	return httpapi.TestWebhook202JSONResponse{
		Body: made, Headers: httpapi.TestWebhook202ResponseHeaders{Location: deliveryPath(c, made)},
	}, nil
}

// RepeatDelivery sends a delivery once more.
func (a *API) RepeatDelivery(ctx context.Context, r httpapi.RepeatDeliveryRequestObject) (httpapi.RepeatDeliveryResponseObject, error) {
	webhook, err := httpapi.Named[id.Webhook](r.WebhookID, fault.UnknownWebhook)
	if err != nil {
		return nil, err
	}
	delivery, err := httpapi.Named[id.Delivery](r.DeliveryID, fault.UnknownDelivery)
	if err != nil {
		return nil, err
	}
	c := call(ctx)
	made, err := a.Deliveries.Redeliver(ctx, c.Client, webhook, delivery, c.Seed)
	if err != nil {
		return nil, err
	}
	return httpapi.RepeatDelivery202JSONResponse{
		Body: made, Headers: httpapi.RepeatDelivery202ResponseHeaders{Location: deliveryPath(c, made)},
	}, nil
}

// RecoverDeliveries delivers again what did not arrive.
func (a *API) RecoverDeliveries(ctx context.Context, r httpapi.RecoverDeliveriesRequestObject) (httpapi.RecoverDeliveriesResponseObject, error) {
	webhook, err := httpapi.Named[id.Webhook](r.WebhookID, fault.UnknownWebhook)
	if err != nil {
		return nil, err
	}
	c := call(ctx)
	recovery, err := a.Deliveries.Recover(ctx, c.Client, webhook, r.Body.Since.Time, c.Seed)
	return httpapi.RecoverDeliveries202JSONResponse(recovery), err
}

// RotateWebhookSecret replaces the signing secret and shows the new one this
// once.
func (a *API) RotateWebhookSecret(ctx context.Context, r httpapi.RotateWebhookSecretRequestObject) (httpapi.RotateWebhookSecretResponseObject, error) {
	webhook, err := httpapi.Named[id.Webhook](r.WebhookID, fault.UnknownWebhook)
	if err != nil {
		return nil, err
	}
	var chosen *string
	if r.Body != nil {
		chosen = r.Body.Secret
	}
	c := call(ctx)
	rotated, secret, err := a.Commands.RotateSecret(ctx, c, webhook, chosen)
	if err != nil {
		return nil, err
	}
	a.Deliveries.Follow(ctx, c.Client, webhook)
	body := webhookBody(rotated)
	body.Secret = &secret
	return httpapi.RotateWebhookSecret200JSONResponse{
		Body: body,
		Headers: httpapi.RotateWebhookSecret200ResponseHeaders{
			ETag: etag(rotated.Outcome), XKindredPosition: position(rotated.Outcome),
		},
	}, nil
}

// RotateWebhookKeys replaces the key pair that signs.
func (a *API) RotateWebhookKeys(ctx context.Context, _ httpapi.RotateWebhookKeysRequestObject) (httpapi.RotateWebhookKeysResponseObject, error) {
	c := call(ctx)
	made, err := a.Commands.RotateWebhookKeys(ctx, c)
	if err != nil {
		return nil, err
	}
	a.Deliveries.Follow(ctx, c.Client, "")
	return httpapi.RotateWebhookKeys200JSONResponse{
		Body:    httpapi.WebhookKey{ID: made.ID, PublicKey: httpapi.PublicKey(made.PublicKey), CreatedAt: httpapi.Time{Time: made.CreatedAt}},
		Headers: httpapi.RotateWebhookKeys200ResponseHeaders{XKindredPosition: position(made.Outcome)},
	}, nil
}

func deliveryPath(c commands.Call, d httpapi.Delivery) string {
	return under(c.Client, "webhooks", d.WebhookID) + "/deliveries/" + string(d.ID)
}
