package console

import (
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
	return p.show("developers", "Developers", "Developers", map[string]any{
		"Keys": keys.Data, "Scopes": keyScopes, "Next": next("developers", asked, keys.NextCursor), "After": after,
	})
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
			return p.again(invalid("days", "From 1 to 3,650 days."), p.developers)
		}
		until := p.Now().Add(time.Duration(*days) * 24 * time.Hour)
		body.ExpiresAt = &until
	}
	made, err := p.api.APIKeys.Create(p.r.Context(), body, p.once())
	if err != nil {
		return p.again(err, p.developers)
	}
	return p.show("secret", "Developers", "The API key", map[string]any{
		"What": "The API key " + made.Record.Name, "Secret": made.RawKey, "Next": Path + "developers",
		"Use": "Your servers exchange it for tokens. Set it as KINDRED_API_KEY there; never in a browser or an app.",
	})
}

func (p *page) revokeKey() error {
	if err := p.api.APIKeys.Revoke(p.r.Context(), p.r.PathValue("id")); err != nil {
		return p.again(err, p.developers)
	}
	return p.done(Path+"developers", "revoked")
}
