package readapi

import (
	"context"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/httpapi"
	"kindred/projections"
	"kindred/projections/readmodel"
)

// GetClient shows the client.
func (a *API) GetClient(ctx context.Context, _ httpapi.GetClientRequestObject) (httpapi.GetClientResponseObject, error) {
	client, eventual := asked(ctx)
	c, err := projections.Clients{Reader: a.Reader}.Get(ctx, client, eventual, a.DefaultSettings)
	if err != nil {
		return nil, err
	}
	blocks, err := a.matchRuleBlocks(ctx, c.Settings.MatchRule, projections.ConsentLayer{})
	if err != nil {
		return nil, err
	}
	return httpapi.GetClient200JSONResponse{
		Body: httpapi.ClientDetails{
			ID: c.ID, Name: c.Name, Slug: c.Slug, Status: httpapi.ClientActive, Tier: httpapi.TierGraph,
			Livemode: !c.ID.Sandbox(),
			Settings: httpapi.ClientSettings{
				WebhookUserIds:        httpapi.WebhookUserIDs(c.Settings.WebhookUserIDs),
				MatchingRequiresLayer: c.Settings.MatchingRequiresLayer,
				AutomaticMatching:     httpapi.AutomaticMatching(c.Settings.AutomaticMatching),
				MatchRule:             httpapi.OrNull(c.Settings.MatchRule),
				MatchRuleBlockedBy:    blocks,
			},
			CreatedAt: httpapi.Time{Time: c.CreatedAt},
		},
		Headers: httpapi.GetClient200ResponseHeaders{ETag: httpapi.ETag(int64(c.Revision))},
	}, nil
}

// ListMembers lists the members of the client.
func (a *API) ListMembers(ctx context.Context, r httpapi.ListMembersRequestObject) (httpapi.ListMembersResponseObject, error) {
	data, next, err := list(ctx, a, "members", r.Params.Limit, r.Params.Cursor, projections.Clients{Reader: a.Reader}.Members,
		func(m projections.Member) eventstore.Position { return m.CreatedPosition }, memberBody)
	return httpapi.ListMembers200JSONResponse{Data: data, NextCursor: next}, err
}

// ListAPIKeys lists the API keys of the client, revoked ones too.
func (a *API) ListAPIKeys(ctx context.Context, r httpapi.ListAPIKeysRequestObject) (httpapi.ListAPIKeysResponseObject, error) {
	data, next, err := list(ctx, a, "api_keys", r.Params.Limit, r.Params.Cursor, projections.APIKeys{Reader: a.Reader}.List,
		func(k projections.APIKey) eventstore.Position { return k.CreatedPosition }, apiKeyBody)
	return httpapi.ListAPIKeys200JSONResponse{Data: data, NextCursor: next}, err
}

// ListSessions lists the sessions of who asks, or of the whole client to an admin.
func (a *API) ListSessions(ctx context.Context, r httpapi.ListSessionsRequestObject) (httpapi.ListSessionsResponseObject, error) {
	p, member := httpapi.PrincipalFrom(ctx), id.Member("")
	if !p.May("admin") {
		member = p.Member
	}
	now := a.Now()
	data, next, err := list(ctx, a, filtered("sessions", string(member)), r.Params.Limit, r.Params.Cursor,
		func(ctx context.Context, client id.Client, eventual bool, page readmodel.Page) ([]projections.Session, error) {
			return projections.Sessions{Reader: a.Reader}.List(ctx, client, eventual, page, member, now)
		},
		func(s projections.Session) eventstore.Position { return s.CreatedPosition },
		func(s projections.Session) httpapi.Session {
			return httpapi.Session{
				ID: s.ID, MemberID: s.Member, Current: s.ID == p.Session, CreatedAt: httpapi.Time{Time: s.OpenedAt},
				LastSeenAt: httpapi.Time{Time: s.SeenAt}, ExpiresAt: httpapi.Time{Time: s.OpenedAt.Add(event.SessionLifetime)},
			}
		})
	return httpapi.ListSessions200JSONResponse{Data: data, NextCursor: next}, err
}

func memberBody(m projections.Member) httpapi.Member {
	return httpapi.Member{ID: m.ID, Email: m.Email, Role: httpapi.Role(m.Role), CreatedAt: httpapi.Time{Time: m.CreatedAt}}
}

func apiKeyBody(k projections.APIKey) httpapi.APIKey {
	return httpapi.APIKey{
		ID: k.ID, ClientID: k.Client, Name: k.Name, Fingerprint: k.Fingerprint, Scopes: k.Scopes,
		CreatedBy: k.IssuedBy, Revoked: k.Revoked, CreatedAt: httpapi.Time{Time: k.CreatedAt},
		ExpiresAt: httpapi.TimeOrNull(k.ExpiresAt), LastUsedAt: httpapi.TimeOrNull(k.LastUsedAt),
	}
}
