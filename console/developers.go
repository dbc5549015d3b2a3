package console

import (
	"net/http"
	"strings"
	"time"

	kindred "kindred/sdk/go"
)

// keyScopes are what a key can be allowed, the least first.
var keyScopes = []kindred.KeyScope{
	kindred.KeyScopeRead, kindred.KeyScopeWrite, kindred.KeyScopeWebhooks, kindred.KeyScopeErase, kindred.KeyScopeAdmin,
}

func (p *page) developers() error {
	ctx, asked := p.r.Context(), p.r.URL.Query()
	keys, err := p.api.APIKeys.ListPage(ctx, kindred.ListAPIKeysParams{Limit: new(int64(pageOf)), Cursor: asked.Get("cursor")})
	if err != nil {
		return err
	}
	newest, err := p.api.Events.List(ctx, kindred.ListEventsParams{Order: kindred.OrderDesc, Limit: new(int64(1))})
	if err != nil {
		return err
	}
	after := ""
	if len(newest.Data) > 0 {
		after = newest.Data[0].ID
	}
	data := map[string]any{
		"Keys": keys.Data, "Scopes": keyScopes, "Next": next("developers", asked, keys.NextCursor), "After": after,
	}
	if err := p.requests(data, 10, ""); err != nil {
		return err
	}
	return p.show("developers", "Developers", say("common.developers"), data)
}

// requestLog shows the latest requests, by what is asked of them.
func (p *page) requestLog() error {
	data := map[string]any{"Asked": p.r.URL.Query(), "Methods": requestMethods}
	if err := p.requests(data, pageOf, p.r.URL.Query().Get("cursor")); err != nil {
		if problemOf(err).Status != http.StatusUnprocessableEntity {
			return err
		}
		p.refused, data["Log"] = problemOf(err), &kindred.RequestList{}
	}
	return p.show("requests", "Developers", say("common.requests"), data)
}

// requestMethods are those that requests are filtered by.
var requestMethods = []kindred.RequestMethod{
	kindred.RequestMethodGet, kindred.RequestMethodHead, kindred.RequestMethodPost, kindred.RequestMethodPut, kindred.RequestMethodPatch, kindred.RequestMethodDelete,
}

// requests adds a page of the request log, and the names of the keys.
func (p *page) requests(data map[string]any, limit int64, cursor string) error {
	ctx, asked := p.r.Context(), p.r.URL.Query()
	log, err := p.api.Overview.ListRequestsPage(ctx, kindred.ListRequestsParams{
		Status: strings.ToLower(strings.TrimSpace(asked.Get("status"))), Method: kindred.RequestMethod(asked.Get("method")), Route: strings.TrimSpace(asked.Get("route")), KeyID: asked.Get("key_id"),
		Limit: &limit, Cursor: cursor,
	})
	if err != nil {
		return err
	}
	keys, _, err := collect(p.api.APIKeys.List(ctx, kindred.ListAPIKeysParams{}), allOf)
	if err != nil {
		return err
	}
	names := map[string]string{}
	for _, k := range keys {
		names[k.ID] = k.Name
	}
	data["Log"], data["AllKeys"], data["KeyNames"], data["More"] = log, keys, names, next("requests", asked, log.NextCursor)
	return nil
}

func (p *page) createKey() error {
	body := kindred.NewAPIKey{Name: p.form("name")}
	for _, s := range p.r.Form["scopes"] {
		body.Scopes = append(body.Scopes, kindred.KeyScope(s))
	}
	days, err := p.whole("days")
	if err != nil {
		return p.again(err, p.developers)
	}
	if days != nil {
		if *days < 1 || *days > 3650 {
			return p.again(invalid("days", say("developers.from_to_days")), p.developers)
		}
		until := p.Now().Add(time.Duration(*days) * 24 * time.Hour)
		body.ExpiresAt = &until
	}
	made, err := p.api.APIKeys.Create(p.r.Context(), body, p.once())
	if err != nil {
		return p.again(err, p.developers)
	}
	return p.reveal(note{Kind: "key", Name: made.Record.Name, Secret: made.RawKey})
}

func (p *page) revokeKey() error {
	ctx, id := p.r.Context(), p.r.PathValue("id")
	err := confirmedIn(p, p.api.APIKeys.List(ctx, kindred.ListAPIKeysParams{}), id,
		func(k kindred.APIKey) (id, name string) { return k.ID, k.Name }, say("developers.type_the_key"))
	if err == nil {
		err = p.api.APIKeys.Revoke(ctx, id)
	}
	if err != nil {
		return p.again(err, p.developers)
	}
	return p.done(Path+"developers", "revoked")
}
