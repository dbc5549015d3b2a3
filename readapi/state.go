package readapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/httpapi"
	"kindred/projections"
	"kindred/projections/readmodel"
	"kindred/projections/segments"
	"kindred/projections/travel"
)

// GetHistoryState shows the client as it was.
func (a *API) GetHistoryState(ctx context.Context, r httpapi.GetHistoryStateRequestObject) (httpapi.GetHistoryStateResponseObject, error) {
	client, eventual := asked(ctx)
	kinds := StateKinds()
	list := filtered("history_state", r.Params.At)
	if r.Params.Kind != nil {
		kinds, list = []httpapi.StateKind{*r.Params.Kind}, filtered(list, string(*r.Params.Kind))
	}
	var only id.User
	if r.Params.UserID != nil {
		if r.Params.Kind != nil && *r.Params.Kind != httpapi.StateUsers {
			return nil, fault.NewInvalid(fault.Field{Pointer: "kind", Detail: "must be users, or left out, beside user_id"})
		}
		var err error
		if only, err = a.user(ctx, *r.Params.UserID); err != nil {
			return nil, err
		}
		kinds, list = []httpapi.StateKind{httpapi.StateUsers}, filtered(list, string(httpapi.StateUsers), string(only))
	}
	page, err := a.page(client, list, r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	from := StatePlace{Kind: kinds[0]}
	var size int64
	if page.After == eventstore.Start {
		size, err = a.States.Resolve(ctx, client, eventual, r.Params.At)
	} else {
		size, from, err = parseStatePlace(string(page.After))
	}
	if err != nil {
		return nil, err
	}
	state, done, err := a.States.Visit(client, size)
	if err != nil {
		return nil, err
	}
	defer done()
	var items []httpapi.HistoryStateItem
	var next *StatePlace
	if only != "" {
		items, err = pastUserOf(ctx, state, only)
	} else {
		items, next, err = StateItems(ctx, state, kinds, from, page.Limit-1)
	}
	if err != nil {
		return nil, err
	}
	answer := httpapi.GetHistoryState200JSONResponse{
		Size: size, Data: items, RecordedAt: httpapi.TimeOrNull(httpapi.OrNull(state.RecordedAt)),
	}
	if next != nil {
		answer.NextCursor = new(a.Cursors.Encode(client, list, fmt.Sprintf("%d/%s/%s", size, next.Kind, next.After)))
	}
	return answer, nil
}

// stateAt returns the client as it was at a moment, which the parameter at a place names;
// done must be called after it was read.
func (a *API) stateAt(ctx context.Context, pointer, at string) (s *travel.State, done func(), err error) {
	client, eventual := asked(ctx)
	size, err := a.States.Resolve(ctx, client, eventual, at)
	if f, ok := errors.AsType[*fault.Fault](err); ok && len(f.Fields) > 0 {
		err = fault.NewInvalid(fault.Field{Pointer: pointer, Detail: f.Fields[0].Detail})
	}
	if err != nil {
		return nil, nil, err
	}
	return a.States.Visit(client, size)
}

func pastSegment(s segments.Segment) *httpapi.HistorySegment {
	past := &httpapi.HistorySegment{
		ID: s.ID, Name: s.Name, CreatedAt: httpapi.Time{Time: s.CreatedAt}, UpdatedAt: httpapi.Time{Time: s.UpdatedAt},
	}
	if s.Rule == "" { // its key is gone
		past.Retired = new(true)
	} else {
		past.Rule, past.Members = &s.Rule, &s.Members
	}
	return past
}

// StatePlace is a place in a state: after an item of a kind.
type StatePlace struct {
	Kind  httpapi.StateKind
	After eventstore.Position
}

func parseStatePlace(text string) (size int64, p StatePlace, err error) {
	parts := strings.SplitN(text, "/", 3)
	if len(parts) == 3 {
		p = StatePlace{httpapi.StateKind(parts[1]), eventstore.Position(parts[2])}
		size, err = strconv.ParseInt(parts[0], 10, 64)
	}
	if len(parts) != 3 || err != nil {
		err = errCursor()
	}
	return size, p, err
}

// StateKinds are what a state holds, in the order in which it is shown.
func StateKinds() []httpapi.StateKind {
	return []httpapi.StateKind{
		httpapi.StateUsers, httpapi.StateWebhooks, httpapi.StateCampaigns, httpapi.StateClusters,
		httpapi.StateConsentLayers, httpapi.StateAPIKeys, httpapi.StateSegments,
	}
}

// StateItems shows at most limit items of the kinds after a place, as many as fit on
// a page, and where there are more.
// Faults: building, overloaded, quarantined, stale.
func StateItems(ctx context.Context, s *travel.State, kinds []httpapi.StateKind, from StatePlace, limit int) (
	items []httpapi.HistoryStateItem, next *StatePlace, err error,
) {
	items = []httpapi.HistoryStateItem{}
	taken := 0
	for _, kind := range kinds[max(0, slices.Index(kinds, from.Kind)):] {
		page := readmodel.Page{Limit: limit - len(items) + 1} // one more tells of another page
		if kind == from.Kind {
			page.After = from.After
		}
		found, err := stateItems(ctx, s, kind, page)
		if err != nil {
			return nil, nil, err
		}
		for _, item := range found {
			if len(items) == limit || taken >= readmodel.MaxPage {
				return items, &from, nil
			}
			taken += item.size
			items, from = append(items, item.HistoryStateItem), StatePlace{kind, item.createdPosition}
		}
	}
	return items, nil, nil
}

type stateItem struct {
	httpapi.HistoryStateItem
	createdPosition eventstore.Position
	size            int // of those that may be large
}

func stateItems(ctx context.Context, s *travel.State, kind httpapi.StateKind, page readmodel.Page) ([]stateItem, error) {
	switch kind {
	case httpapi.StateUsers:
		found, err := projections.Users{Reader: s.Reader}.ListAll(ctx, s.Client, page)
		return each(found, func(u projections.User) stateItem {
			return stateItem{httpapi.HistoryStateItem{User: pastUser(u)}, u.CreatedPosition, u.Size}
		}), err
	case httpapi.StateWebhooks:
		found, err := projections.Webhooks{Reader: s.Reader}.List(ctx, s.Client, true, nil, page)
		return each(found, func(w projections.Webhook) stateItem {
			return stateItem{httpapi.HistoryStateItem{Webhook: new(webhookBody(w))}, w.CreatedPosition, 0}
		}), err
	case httpapi.StateCampaigns:
		found, err := projections.Campaigns{Reader: s.Reader}.List(ctx, s.Client, true, nil, page)
		return each(found, func(c projections.Campaign) stateItem {
			return stateItem{httpapi.HistoryStateItem{Campaign: new(campaignBody(c))}, c.CreatedPosition, 0}
		}), err
	case httpapi.StateClusters:
		found, err := projections.Clusters{Reader: s.Reader}.ListAll(ctx, s.Client, true, page)
		return each(found, func(c projections.Cluster) stateItem {
			return stateItem{httpapi.HistoryStateItem{Cluster: new(clusterBody(c))}, c.CreatedPosition, 0}
		}), err
	case httpapi.StateConsentLayers:
		found, err := projections.Consent{Reader: s.Reader}.Layers(ctx, s.Client, true, page)
		return each(found, func(l projections.ConsentLayer) stateItem {
			return stateItem{httpapi.HistoryStateItem{ConsentLayer: new(layerBody(l))}, l.CreatedPosition, 0}
		}), err
	case httpapi.StateAPIKeys:
		found, err := projections.APIKeys{Reader: s.Reader}.List(ctx, s.Client, true, page)
		return each(found, func(k projections.APIKey) stateItem {
			k.LastUsedAt = nil // is known of today alone
			return stateItem{httpapi.HistoryStateItem{APIKey: new(apiKeyBody(k))}, k.CreatedPosition, 0}
		}), err
	case httpapi.StateSegments:
		found, err := segments.Model{Reader: s.Reader}.ListAll(ctx, s.Client, true, page)
		return each(found, func(g segments.Segment) stateItem {
			return stateItem{httpapi.HistoryStateItem{Segment: pastSegment(g)}, g.CreatedPosition, 0}
		}), err
	}
	return nil, fmt.Errorf("a state holds no %s", kind)
}

// pastUserOf is one user, or nobody where there was no such user yet.
func pastUserOf(ctx context.Context, s *travel.State, user id.User) ([]httpapi.HistoryStateItem, error) {
	found, err := projections.Users{Reader: s.Reader}.GetAny(ctx, s.Client, user)
	return each(found, func(u projections.User) httpapi.HistoryStateItem { return httpapi.HistoryStateItem{User: pastUser(u)} }), err
}

func pastUser(u projections.User) *httpapi.HistoryUser {
	now := userBody(u)
	past := httpapi.HistoryUser{ID: now.ID, CreatedAt: now.CreatedAt, UpdatedAt: now.UpdatedAt}
	if u.Erased {
		past.Erased = &u.Erased
	} else {
		past.ExternalID, past.Traits = &now.ExternalID, now.Traits
	}
	return &past
}
