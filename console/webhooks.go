package console

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"time"

	kindred "kindred/sdk/go"
)

func (p *page) webhooks() error {
	asked := p.r.URL.Query()
	found, err := p.api.Webhooks.ListPage(p.r.Context(), kindred.ListWebhooksParams{Limit: new(int64(20)), Cursor: asked.Get("cursor")})
	if err != nil {
		return err
	}
	var hooks []kindred.Webhook
	for _, hook := range found.Data { // a list does not tell how they do
		one, err := p.api.Webhooks.Get(p.r.Context(), hook.ID)
		switch {
		case err == nil:
			hooks = append(hooks, *one)
		case problemOf(err).Status == http.StatusNotFound: // it was deleted since it was listed
		default:
			return err
		}
	}
	return p.show("webhooks", "Webhooks", say("titles.webhooks"), map[string]any{
		"Webhooks": hooks, "Types": kindred.EventTypes(), "Next": next("webhooks", asked, found.NextCursor),
	})
}

func (p *page) createWebhook() error {
	body := kindred.NewWebhook{URL: p.form("url"), Secret: p.optional("secret"), EventTypes: []kindred.EventType{}}
	for _, t := range p.r.Form["event_types"] {
		body.EventTypes = append(body.EventTypes, kindred.EventType(t))
	}
	if body.Secret == nil && p.form("make_secret") != "" {
		body.Secret = new(p.madeSecret())
	}
	made, err := p.api.Webhooks.Create(p.r.Context(), body, p.once())
	if err != nil {
		return p.again(err, p.webhooks)
	}
	if made.Secret != nil { // it is in this answer alone
		return p.reveal(note{Kind: "endpoint", Name: made.URL, Of: made.ID, Secret: *made.Secret})
	}
	return p.done(Path+"webhooks/"+url.PathEscape(made.ID), "created")
}

// madeSecret is a secret for the endpoint of a form: sent twice, the form makes one endpoint
// with one secret.
func (p *page) madeSecret() string {
	key := p.form("key")
	if len(key) < shortestKey {
		key = p.NewKey()
	}
	hash := sha256.Sum256([]byte("kindred.console.webhook.1\n" + key))
	return "whsec_" + base64.StdEncoding.EncodeToString(hash[:24])
}

// shortestKey is how long those that NewKey makes are at least: 128 random bits.
const shortestKey = 26

func (p *page) webhook() error { return p.webhookWith(nil) }

// webhookWith shows an endpoint, and beside it how a request that its server got is verified.
func (p *page) webhookWith(checked *kindred.DeliveryCheck) error {
	ctx, asked := p.r.Context(), p.r.URL.Query()
	var read kindred.Answer
	one, err := p.api.Webhooks.Get(ctx, p.r.PathValue("id"), kindred.WithAnswer(&read))
	if err != nil {
		return err
	}
	deliveries, err := p.api.Webhooks.ListDeliveriesPage(ctx, one.ID, kindred.ListDeliveriesParams{
		Status: kindred.DeliveryStatus(asked.Get("status")), Limit: new(int64(pageOf)), Cursor: asked.Get("cursor"),
	})
	if err != nil {
		return err
	}
	keys := &kindred.WebhookKeyList{}
	if one.Ed25519 != nil && *one.Ed25519 {
		if keys, err = p.api.Webhooks.ListKeys(ctx); err != nil {
			return err
		}
	}
	since := p.Now().Add(-24 * time.Hour)
	if d := one.Deliveries; d != nil && d.FailingSince != nil && d.FailingSince.Add(-time.Hour).Before(since) {
		since = d.FailingSince.Add(-time.Hour) // what failed first had happened before
	}
	return p.show("webhook", "Webhooks", one.URL, map[string]any{
		"Keys": keys.Data, "Checked": checked, "Since": &since, "Webhook": one, "ETag": p.etag(read), "Deliveries": deliveries.Data, "Status": asked.Get("status"), "Types": kindred.EventTypes(),
		"Next": next("webhooks/"+url.PathEscape(one.ID), asked, deliveries.NextCursor),
	})
}

func (p *page) changeWebhook() error {
	id := p.r.PathValue("id")
	change, notice := kindred.WebhookChange{}, "saved"
	if status := p.form("status"); status != "" {
		change.Status, notice = new(kindred.WebhookStatus(status)), status
		if notices[notice] == "" {
			return p.again(invalid("status", say("webhook.an_endpoint_can_be")), p.webhook)
		}
	} else if p.form("controls") != "" {
		before, err := p.api.Webhooks.Get(p.r.Context(), id)
		if err == nil {
			err = p.controls(&change, before)
		}
		if err != nil {
			return p.again(err, p.webhook)
		}
	} else {
		change.URL = new(p.form("url"))
		change.EventTypes = []kindred.EventType{}
		for _, t := range p.r.Form["event_types"] {
			change.EventTypes = append(change.EventTypes, kindred.EventType(t))
		}
	}
	if _, err := p.api.Webhooks.Change(p.r.Context(), id, change, p.asSeen()...); err != nil {
		return p.again(err, p.webhook)
	}
	return p.done(Path+"webhooks/"+url.PathEscape(id), notice)
}

// controls reads how deliveries are to go. Headers that are not typed stay as they are.
func (p *page) controls(change *kindred.WebhookChange, before *kindred.Webhook) (err error) {
	if change.MaxPerSecond, err = p.nullable("max_per_second"); err != nil {
		return err
	}
	if change.DisableAfterSeconds, err = p.typedSpan("disable_after_hours", time.Hour, 30*24, before.DisableAfterSeconds); err != nil {
		return err
	}
	change.Filter = kindred.Null[string]()
	if filter := p.optional("filter"); filter != nil {
		change.Filter = kindred.Value(*filter)
	}
	change.Ordered, change.RespectRetryAfter = new(p.form("ordered") != ""), new(p.form("respect_retry_after") != "")
	change.Ed25519 = new(p.form("ed25519") != "")
	headers, err := p.headers("headers")
	switch {
	case err != nil:
		return err
	case len(headers) > 0:
		change.Headers = kindred.Value(headers)
	case p.form("no_headers") != "":
		change.Headers = kindred.Null[map[string]string]()
	}
	return nil
}

// headers reads a header from each line of a field.
func (p *page) headers(field string) (map[string]string, error) {
	headers := map[string]string{}
	for line := range strings.Lines(p.form(field)) {
		name, value, ok := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, invalid(field, say("webhook.each_line_is_a"))
		}
		headers[name] = strings.TrimSpace(value)
	}
	return headers, nil
}

// actOnWebhook tests an endpoint, replaces its secret or the keys, sends again what was
// dropped, looks at what its server got, or removes it.
func (p *page) actOnWebhook() error {
	ctx, id := p.r.Context(), p.r.PathValue("id")
	at, notice := Path+"webhooks/"+url.PathEscape(id), ""
	var err error
	switch p.r.PathValue("action") {
	case "test":
		notice = "tested"
		_, err = p.api.Webhooks.Test(ctx, id, kindred.WebhookTest{EventType: kindred.EventType(p.form("event_type"))}, p.once())
	case "recover":
		notice = "recovered"
		since, failed := time.ParseInLocation(typedLayout, p.form("since"), zoneOf(p.r))
		if err = failed; err != nil {
			err = invalid("since", say("history.this_must_be_a"))
		} else {
			_, err = p.api.Webhooks.RecoverDeliveries(ctx, id, kindred.RecoveryRequest{Since: since}, p.once())
		}
	case "rotate":
		var rotated *kindred.Webhook
		if rotated, err = p.api.Webhooks.RotateSecret(ctx, id, kindred.WebhookRotation{}, p.once()); err == nil && rotated.Secret != nil {
			return p.reveal(note{Kind: "rotated", Name: rotated.URL, Of: rotated.ID, Secret: *rotated.Secret})
		}
		notice = "saved"
	case "keys":
		notice = "rotated"
		_, err = p.api.Webhooks.RotateKeys(ctx, p.once())
	case "check":
		var got map[string]string
		if got, err = p.headers("got_headers"); err == nil {
			var checked *kindred.DeliveryCheck
			if checked, err = p.api.Webhooks.Check(ctx, kindred.ReceivedRequest{Headers: got, Body: p.form("got_body")}); err == nil {
				return p.webhookWith(checked)
			}
		}
	case "remove":
		at, notice = Path+"webhooks", "removed"
		if err = p.confirmed(id, "remove", say("webhook.type_remove_to_be")); err == nil {
			err = p.api.Webhooks.Remove(ctx, id)
		}
	default:
		err = &kindred.Error{Status: http.StatusNotFound, Detail: say("webhook.there_is_no_such")}
	}
	if err != nil {
		return p.again(err, p.webhook)
	}
	return p.done(at, notice)
}

func (p *page) delivery() error {
	one, err := p.api.Webhooks.GetDelivery(p.r.Context(), p.r.PathValue("id"), p.r.PathValue("delivery"))
	if err != nil {
		return err
	}
	hook, err := p.api.Webhooks.Get(p.r.Context(), p.r.PathValue("id"))
	if err != nil {
		return err
	}
	return p.show("delivery", "Webhooks", say("titles.delivery"), map[string]any{"Delivery": one, "Webhook": hook})
}

func (p *page) redeliver() error {
	id := p.r.PathValue("id")
	again, err := p.api.Webhooks.RepeatDelivery(p.r.Context(), id, p.r.PathValue("delivery"), p.once())
	if err != nil {
		return p.again(err, p.delivery)
	}
	return p.done(Path+"webhooks/"+url.PathEscape(id)+"/deliveries/"+url.PathEscape(again.ID), "redelivered")
}
