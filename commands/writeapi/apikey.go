package writeapi

import (
	"context"

	"kindred/commands"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/httpapi"
)

// CreateAPIKey makes an API key and shows its raw form this once.
func (a *API) CreateAPIKey(ctx context.Context, r httpapi.CreateAPIKeyRequestObject) (httpapi.CreateAPIKeyResponseObject, error) {
	scopes := make([]string, len(r.Body.Scopes))
	for i, s := range r.Body.Scopes {
		scopes[i] = string(s)
	}
	c := call(ctx)
	key, err := a.Commands.IssueAPIKey(ctx, c, commands.IssueAPIKey{Name: r.Body.Name, Scopes: scopes, ExpiresAt: r.Body.ExpiresAt})
	if err != nil {
		return nil, err
	}
	return httpapi.CreateAPIKey201JSONResponse{
		Body: httpapi.APIKeyCreated{
			RawKey: key.Raw,
			Record: httpapi.APIKey{
				ID: key.Key, ClientID: c.Client, Name: key.Name, Fingerprint: key.Fingerprint, Scopes: key.Scopes,
				CreatedBy: key.IssuedBy, CreatedAt: httpapi.Time{Time: key.CreatedAt}, ExpiresAt: httpapi.TimeOrNull(key.ExpiresAt),
			},
		},
		Headers: httpapi.CreateAPIKey201ResponseHeaders{
			Location: under(c.Client, "api_keys", key.Key), XKindredPosition: position(key.Outcome),
		},
	}, nil
}

// RevokeAPIKey ends a key and all tokens that were exchanged for it.
func (a *API) RevokeAPIKey(ctx context.Context, r httpapi.RevokeAPIKeyRequestObject) (httpapi.RevokeAPIKeyResponseObject, error) {
	key, err := httpapi.Named[id.Key](r.KeyID, fault.UnknownAPIKey)
	if err != nil {
		return nil, err
	}
	outcome, err := a.Commands.RevokeAPIKey(ctx, call(ctx), key)
	if err != nil {
		return nil, err
	}
	return httpapi.RevokeAPIKey204Response{
		Headers: httpapi.RevokeAPIKey204ResponseHeaders{XKindredPosition: position(outcome)},
	}, nil
}
