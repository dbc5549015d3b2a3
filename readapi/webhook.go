package readapi

import (
	"context"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/httpapi"
	"kindred/projections"
	"kindred/projections/readmodel"
)

// ListWebhooks lists the subscriptions of the client.
func (a *API) ListWebhooks(ctx context.Context, r httpapi.ListWebhooksRequestObject) (httpapi.ListWebhooksResponseObject, error) {
	name, paused := "webhooks", (*bool)(nil)
	if r.Params.Status != nil {
		name = filtered(name, string(*r.Params.Status))
		paused = new(*r.Params.Status == httpapi.WebhookPaused)
	}
	data, next, err := list(ctx, a, name, r.Params.Limit, r.Params.Cursor,
		func(ctx context.Context, client id.Client, eventual bool, page readmodel.Page) ([]projections.Webhook, error) {
			return projections.Webhooks{Reader: a.Reader}.List(ctx, client, eventual, paused, page)
		}, func(w projections.Webhook) eventstore.Position { return w.CreatedPosition }, webhookBody)
	return httpapi.ListWebhooks200JSONResponse{Data: data, NextCursor: next}, err
}

// GetWebhook shows a subscription.
func (a *API) GetWebhook(ctx context.Context, r httpapi.GetWebhookRequestObject) (httpapi.GetWebhookResponseObject, error) {
	client, eventual := asked(ctx)
	found, err := get(ctx, r.WebhookID, fault.UnknownWebhook, projections.Webhooks{Reader: a.Reader}.Get)
	if err != nil {
		return nil, err
	}
	health, err := a.Deliveries.Health(ctx, client, eventual, found.ID)
	if err != nil {
		return nil, err
	}
	body := webhookBody(found)
	body.Deliveries = &health
	return httpapi.GetWebhook200JSONResponse{
		Body:    body,
		Headers: httpapi.GetWebhook200ResponseHeaders{ETag: httpapi.ETag(int64(found.Revision))},
	}, nil
}

func webhookBody(w projections.Webhook) httpapi.Webhook {
	status := httpapi.WebhookActive
	if w.Paused {
		status = httpapi.WebhookPaused
	}
	body := httpapi.Webhook{
		ID: w.ID, URL: w.URL, HasSecret: w.Signed, Status: status,
		EventTypes: each(w.EventTypes, func(t string) httpapi.EventType { return httpapi.EventType(t) }),
		CreatedAt:  httpapi.Time{Time: w.CreatedAt}, UpdatedAt: httpapi.Time{Time: w.UpdatedAt},
	}
	body.Control(w.HeaderNames, httpapi.Controls(w.Controls), w.Disabled)
	return body
}
