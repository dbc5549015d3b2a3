package readapi

import (
	"context"

	"kindred/eventstore"
	"kindred/httpapi"
	"kindred/projections"
)

// ListWebhooks lists the subscriptions of the client.
func (a *API) ListWebhooks(ctx context.Context, r httpapi.ListWebhooksRequestObject) (httpapi.ListWebhooksResponseObject, error) {
	client, eventual := asked(ctx)
	list, paused := "webhooks", (*bool)(nil)
	if r.Params.Status != nil {
		list = filtered(list, string(*r.Params.Status))
		is := *r.Params.Status == httpapi.WebhookPaused
		paused = &is
	}
	page, err := a.page(client, list, r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	found, err := a.Webhooks.List(ctx, client, eventual, paused, page)
	if err != nil {
		return nil, err
	}
	found, next := cut(a, client, list, page, found, func(w projections.Webhook) eventstore.Position { return w.Born })
	return httpapi.ListWebhooks200JSONResponse{NextCursor: next, Data: each(found, webhookBody)}, nil
}

// GetWebhook shows a subscription.
func (a *API) GetWebhook(ctx context.Context, r httpapi.GetWebhookRequestObject) (httpapi.GetWebhookResponseObject, error) {
	client, eventual := asked(ctx)
	webhook, err := parseWebhook(r.WebhookID)
	if err != nil {
		return nil, err
	}
	found, err := a.Webhooks.Get(ctx, client, eventual, webhook)
	if err != nil {
		return nil, err
	}
	health, err := a.Deliveries.Health(ctx, client, eventual, webhook)
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
	return httpapi.Webhook{
		ID: w.ID, URL: w.URL, HasSecret: w.Signed, Status: status,
		EventTypes: each(w.EventTypes, func(t string) httpapi.EventType { return httpapi.EventType(t) }),
		CreatedAt:  httpapi.Time{Time: w.CreatedAt}, UpdatedAt: httpapi.Time{Time: w.UpdatedAt},
	}
}
