package writeapi

import (
	"context"

	"kindred/commands"
	"kindred/domain"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/httpapi"
)

// SignUp makes a client and its owner.
func (a *API) SignUp(ctx context.Context, r httpapi.SignUpRequestObject) (httpapi.SignUpResponseObject, error) {
	account, err := a.Commands.SignUp(ctx, call(ctx), commands.SignUp{
		Email: r.Body.Email, Password: r.Body.Password, CompanyName: r.Body.CompanyName,
	})
	if err != nil {
		return nil, err
	}
	login, err := a.Login(ctx, account)
	if err != nil {
		return nil, err
	}
	return httpapi.SignUp201JSONResponse{
		Body: httpapi.SignedUp{
			Client: httpapi.ClientSummary{
				ID: account.Client, Slug: account.ClientSlug, Name: account.ClientName,
				Status: domain.ClientStatus, Tier: domain.ClientTier,
			},
			User:  httpapi.ClientUser{ID: account.Member, Email: account.Email, Role: httpapi.Role(account.Role)},
			Token: login.Token, Scopes: login.Scopes, ExpiresIn: int(login.ExpiresIn.Seconds()),
		},
		Headers: httpapi.SignUp201ResponseHeaders{
			Location: "/api/v1/clients/" + string(account.Client), XKindredPosition: position(account.Outcome),
		},
	}, nil
}

// ChangeClient renames the client or changes its settings.
func (a *API) ChangeClient(ctx context.Context, r httpapi.ChangeClientRequestObject) (httpapi.ChangeClientResponseObject, error) {
	change := commands.ClientChange{Name: r.Body.Name}
	if s := r.Body.Settings; s != nil {
		change.Settings.WebhookUserIDs, change.Settings.RequiresLayer = (*string)(s.WebhookUserIds), s.MatchingRequiresLayer
		change.Settings.MatchRule = orZero(s.MatchRule)
		if m := s.AutomaticMatching; m != nil {
			change.Settings.Automatic, change.Settings.K, change.Settings.MinScore = m.On, m.K, m.MinScore
		}
	}
	client, err := a.Commands.ChangeClient(ctx, call(ctx), change)
	if err != nil {
		return nil, err
	}
	blocks, err := a.matchRuleBlocks(ctx, client.Settings.MatchRule, false, nil)
	if err != nil {
		return nil, err
	}
	return httpapi.ChangeClient200JSONResponse{
		Body: httpapi.ClientDetails{
			ID: client.ID, Name: client.Name, Slug: client.Slug, Status: domain.ClientStatus, Tier: domain.ClientTier,
			Livemode: !client.ID.Sandbox(),
			Settings: httpapi.ClientSettings{
				WebhookUserIds:        httpapi.WebhookUserIDs(client.Settings.WebhookUserIDs),
				MatchingRequiresLayer: client.Settings.MatchingRequiresLayer,
				AutomaticMatching:     httpapi.AutomaticMatching(client.Settings.AutomaticMatching),
				MatchRule:             httpapi.OrNull(client.Settings.MatchRule),
				MatchRuleBlockedBy:    blocks,
			},
			CreatedAt: httpapi.Time{Time: client.Outcome.History[0].RecordedAt},
		},
		Headers: httpapi.ChangeClient200ResponseHeaders{
			ETag: etag(client.Outcome), XKindredPosition: position(client.Outcome),
		},
	}, nil
}

// AddMember lets somebody log in.
func (a *API) AddMember(ctx context.Context, r httpapi.AddMemberRequestObject) (httpapi.AddMemberResponseObject, error) {
	account, err := a.Commands.AddMember(ctx, call(ctx), commands.AddMember{
		Email: r.Body.Email, Role: string(r.Body.Role), Password: r.Body.Password,
	})
	if err != nil {
		return nil, err
	}
	return httpapi.AddMember201JSONResponse{
		Body: httpapi.Member{
			ID: account.Member, Email: account.Email, Role: httpapi.Role(account.Role),
			CreatedAt: httpapi.Time{Time: account.CreatedAt},
		},
		Headers: httpapi.AddMember201ResponseHeaders{
			Location:         under(account.Client, "members", account.Member),
			XKindredPosition: position(account.Outcome),
		},
	}, nil
}

// RemoveMember ends a membership.
func (a *API) RemoveMember(ctx context.Context, r httpapi.RemoveMemberRequestObject) (httpapi.RemoveMemberResponseObject, error) {
	member, err := httpapi.Named[id.Member](r.MemberID, fault.UnknownMember)
	if err != nil {
		return nil, err
	}
	kept := make([]id.Key, len(r.Params.KeepAPIKeys))
	for i, key := range r.Params.KeepAPIKeys {
		if kept[i], err = httpapi.Named[id.Key](key, fault.UnknownAPIKey); err != nil {
			return nil, err
		}
	}
	outcome, err := a.Commands.RemoveMember(ctx, call(ctx), member, kept...)
	if err != nil {
		return nil, err
	}
	return httpapi.RemoveMember204Response{
		Headers: httpapi.RemoveMember204ResponseHeaders{XKindredPosition: position(outcome)},
	}, nil
}
