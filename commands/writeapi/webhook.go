package writeapi

import (
	"context"

	"kindred/commands"
	"kindred/domain"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/httpapi"
)

// CreateWebhook opens a subscription.
func (a *API) CreateWebhook(ctx context.Context, r httpapi.CreateWebhookRequestObject) (httpapi.CreateWebhookResponseObject, error) {
	c := call(ctx)
	webhook, err := a.Commands.Subscribe(ctx, c, commands.Subscribe{
		URL: r.Body.URL, EventTypes: typeNames(r.Body.EventTypes), Secret: r.Body.Secret,
		Controls: domain.ControlsChange{
			Headers: (*map[string]string)(r.Body.Headers), RespectRetryAfter: r.Body.RespectRetryAfter, DisableAfter: r.Body.DisableAfterSeconds,
			MaxPerSecond: r.Body.MaxPerSecond, Ordered: r.Body.Ordered, Ed25519: r.Body.Ed25519, Filter: r.Body.Filter,
		},
	})
	if err != nil {
		return nil, err
	}
	body := webhookBody(webhook)
	body.Secret = r.Body.Secret
	return httpapi.CreateWebhook201JSONResponse{
		Body: body,
		Headers: httpapi.CreateWebhook201ResponseHeaders{
			Location: under(c.Client, "webhooks", webhook.ID),
			ETag:     etag(webhook.Outcome), XKindredPosition: position(webhook.Outcome),
		},
	}, nil
}

// ChangeWebhook changes, pauses or resumes a subscription.
func (a *API) ChangeWebhook(ctx context.Context, r httpapi.ChangeWebhookRequestObject) (httpapi.ChangeWebhookResponseObject, error) {
	webhook, err := httpapi.Named[id.Webhook](r.WebhookID, fault.UnknownWebhook)
	if err != nil {
		return nil, err
	}
	change := commands.ChangeWebhook{URL: r.Body.URL, Secret: r.Body.Secret, Status: (*string)(r.Body.Status)}
	change.Controls = domain.ControlsChange{
		Headers: orZero(r.Body.Headers), RespectRetryAfter: r.Body.RespectRetryAfter, DisableAfter: orZero(r.Body.DisableAfterSeconds),
		MaxPerSecond: orZero(r.Body.MaxPerSecond), Ordered: r.Body.Ordered, Ed25519: r.Body.Ed25519, Filter: orZero(r.Body.Filter),
	}
	if r.Body.EventTypes != nil {
		types := typeNames(*r.Body.EventTypes)
		change.EventTypes = &types
	}
	c := call(ctx)
	changed, err := a.Commands.ChangeWebhook(ctx, c, webhook, change)
	if err != nil {
		return nil, err
	}
	a.Deliveries.Follow(ctx, c.Client, webhook)
	return httpapi.ChangeWebhook200JSONResponse{
		Body: webhookBody(changed),
		Headers: httpapi.ChangeWebhook200ResponseHeaders{
			ETag: etag(changed.Outcome), XKindredPosition: position(changed.Outcome),
		},
	}, nil
}

// RemoveWebhook ends a subscription.
func (a *API) RemoveWebhook(ctx context.Context, r httpapi.RemoveWebhookRequestObject) (httpapi.RemoveWebhookResponseObject, error) {
	webhook, err := httpapi.Named[id.Webhook](r.WebhookID, fault.UnknownWebhook)
	if err != nil {
		return nil, err
	}
	c := call(ctx)
	outcome, err := a.Commands.RemoveWebhook(ctx, c, webhook)
	if err != nil {
		return nil, err
	}
	a.Deliveries.Follow(ctx, c.Client, webhook)
	return httpapi.RemoveWebhook204Response{
		Headers: httpapi.RemoveWebhook204ResponseHeaders{XKindredPosition: position(outcome)},
	}, nil
}

func typeNames(types []httpapi.EventType) []string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = string(t)
	}
	return names
}

// orZero is nil for a field that was left out, and the zero value for null.
func orZero[T any](n httpapi.Nullable[T]) *T {
	if n.Given && n.Value == nil {
		return new(T)
	}
	return n.Value
}

func webhookBody(w commands.Webhook) httpapi.Webhook {
	types := make([]httpapi.EventType, len(w.EventTypes))
	for i, t := range w.EventTypes {
		types[i] = httpapi.EventType(t)
	}
	body := httpapi.Webhook{
		ID: w.ID, URL: w.URL, EventTypes: types, HasSecret: w.Signed, Status: httpapi.WebhookStatus(w.Status()),
		CreatedAt: httpapi.Time{Time: w.CreatedAt}, UpdatedAt: httpapi.Time{Time: w.UpdatedAt},
	}
	body.Control(w.HeaderNames, httpapi.Controls(w.Controls), w.Disabled)
	return body
}
