package readapi

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/httpapi"
	"kindred/projections"
	"kindred/projections/readmodel"
)

// Deliveries shows what became of deliveries to webhooks. What they are asked
// about is as fresh as the read models.
type Deliveries interface {
	// List returns deliveries of a status, or of all where that is "", in the
	// order of their places, or the newest first, and how many events were skipped.
	List(ctx context.Context, client id.Client, eventual bool, webhook id.Webhook, status string, newest bool, page readmodel.Page) ([]Delivery, int64, error)
	Get(ctx context.Context, client id.Client, eventual bool, webhook id.Webhook, delivery id.Delivery) (httpapi.Delivery, error)
	Health(ctx context.Context, client id.Client, eventual bool, webhook id.Webhook) (httpapi.WebhookHealth, error)
	// Keys returns the key pairs that sign now, the newest first.
	Keys(ctx context.Context, client id.Client, eventual bool) ([]httpapi.WebhookKey, error)
	// Failing returns the active endpoints that fail, as far as is known by now.
	Failing(ctx context.Context, client id.Client, limit int) ([]FailingEndpoint, error)
	// Check verifies what a receiver got; sent is the body as it was sent, nil where
	// that is not known.
	Check(ctx context.Context, client id.Client, eventual bool, header http.Header, body, sent []byte) (httpapi.DeliveryCheck, error)
}

// FailingEndpoint is a webhook whose receiver did not accept the last attempt.
type FailingEndpoint struct {
	Webhook id.Webhook
	Since   time.Time
	Waiting int // deliveries
}

// Delivery is one entry of a list, with its place in it.
type Delivery struct {
	httpapi.Delivery
	Place eventstore.Position
}

// ListDeliveries lists the deliveries to a webhook.
func (a *API) ListDeliveries(ctx context.Context, r httpapi.ListDeliveriesRequestObject) (httpapi.ListDeliveriesResponseObject, error) {
	client, eventual := asked(ctx)
	webhook, err := httpapi.Named[id.Webhook](r.WebhookID, fault.UnknownWebhook)
	if err != nil {
		return nil, err
	}
	status := string(httpapi.Or(r.Params.Status, ""))
	order := httpapi.Or(r.Params.Order, httpapi.OrderAsc)
	list := filtered("deliveries", string(webhook), status, string(order))
	page, err := a.page(client, list, r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	if _, err := (projections.Webhooks{Reader: a.Reader}).Get(ctx, client, eventual, webhook); err != nil {
		return nil, err
	}
	found, skipped, err := a.Deliveries.List(ctx, client, eventual, webhook, status, order == httpapi.OrderDesc, page)
	if err != nil {
		return nil, err
	}
	found, next := cut(a, client, list, page, found, answers, func(d Delivery) eventstore.Position { return d.Place })
	return httpapi.ListDeliveries200JSONResponse{
		Data: each(found, func(d Delivery) httpapi.Delivery { return d.Delivery }), NextCursor: next, Skipped: skipped,
	}, nil
}

// answers is how many bytes the receiver has answered to a delivery.
func answers(d *Delivery) (size int) {
	for _, attempt := range d.Attempts {
		size += len(attempt.Answer)
	}
	return size
}

// ListWebhookKeys lists the public keys that verify deliveries.
func (a *API) ListWebhookKeys(ctx context.Context, _ httpapi.ListWebhookKeysRequestObject) (httpapi.ListWebhookKeysResponseObject, error) {
	client, eventual := asked(ctx)
	keys, err := a.Deliveries.Keys(ctx, client, eventual)
	return httpapi.ListWebhookKeys200JSONResponse{Data: keys}, err
}

// GetDelivery shows a delivery.
func (a *API) GetDelivery(ctx context.Context, r httpapi.GetDeliveryRequestObject) (httpapi.GetDeliveryResponseObject, error) {
	client, eventual := asked(ctx)
	webhook, err := httpapi.Named[id.Webhook](r.WebhookID, fault.UnknownWebhook)
	if err != nil {
		return nil, err
	}
	delivery, err := httpapi.Named[id.Delivery](r.DeliveryID, fault.UnknownDelivery)
	if err != nil {
		return nil, err
	}
	found, err := a.Deliveries.Get(ctx, client, eventual, webhook, delivery)
	return httpapi.GetDelivery200JSONResponse(found), err
}

// CheckWebhook says why a receiver cannot verify what it got.
func (a *API) CheckWebhook(ctx context.Context, r httpapi.CheckWebhookRequestObject) (httpapi.CheckWebhookResponseObject, error) {
	client, eventual := asked(ctx)
	header := http.Header{}
	for _, name := range slices.Sorted(maps.Keys(r.Body.Headers)) { // of one that is named twice, the first counts
		header.Add(name, r.Body.Headers[name])
	}
	var sent []byte
	if of, err := id.Parse[id.Event](header.Get("Webhook-Id")); err == nil {
		event, found, err := projections.PublicEvents{Reader: a.Reader}.Get(ctx, client, eventual, of)
		if err != nil {
			return nil, err
		}
		if found && !event.Erased { // else it named somebody whose name nobody has any more
			sent = event.Body
		}
	}
	found, err := a.Deliveries.Check(ctx, client, eventual, header, []byte(r.Body.Body), sent)
	return httpapi.CheckWebhook200JSONResponse(found), err
}
