package console

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	kindred "kindred/sdk/go"
)

func (p *page) history() error {
	asked := p.r.URL.Query()
	params := kindred.ListHistoryParams{
		Type: strings.TrimSpace(asked.Get("type")), Actor: strings.TrimSpace(asked.Get("actor")), Stream: strings.TrimSpace(asked.Get("stream")),
		Data: new(false), Order: kindred.OrderDesc, Limit: new(int64(pageOf)), Cursor: asked.Get("cursor"),
	}
	if asked.Get("order") == string(kindred.OrderAsc) {
		params.Order = kindred.OrderAsc
	}
	for name, to := range map[string]*time.Time{"from": &params.From, "to": &params.To} {
		if text := asked.Get(name); text != "" {
			at, err := time.ParseInLocation(typedLayout, text, zoneOf(p.r))
			if err != nil {
				p.refused = problemOf(invalid(name, say("history.this_must_be_a")))
			}
			*to = at
		}
	}
	found := &kindred.HistoryPage{}
	if p.refused == nil {
		var err error
		if found, err = p.api.History.ListPage(p.r.Context(), params); err != nil {
			refused := problemOf(err)
			if refused.Field("type")+refused.Field("actor")+refused.Field("stream") == "" {
				return err
			}
			p.refused, found = refused, &kindred.HistoryPage{}
		}
	}
	return p.show("history", "History", say("titles.history"), map[string]any{
		"Events": found.Data, "Actors": p.actors(), "Asked": asked, "Next": next("history", asked, found.NextCursor),
	})
}

// actor is a key or a member, and where the console shows it.
type actor struct{ Name, Path string }

// actors are those that the pages lead to, by their ids: nobody but an admin sees them. Where a list of them is not answered,
// an id stands in the place of a name: the history is there without it.
func (p *page) actors() map[string]*actor {
	actors := map[string]*actor{}
	if !p.who.has("admin") {
		return actors
	}
	if keys, err := p.api.APIKeys.ListPage(p.r.Context(), kindred.ListAPIKeysParams{Limit: new(int64(pageOf))}); err == nil { // as many as the page shows at first
		for _, k := range keys.Data {
			actors[k.ID] = &actor{k.Name, Path + "developers#" + k.ID}
		}
	}
	if members, err := p.members(); err == nil {
		for id, m := range members {
			actors[id] = &actor{m.Email, Path + "settings#" + id}
		}
	}
	return actors
}

// downloadHistory passes on the whole history, as it can be verified.
func (p *page) downloadHistory() error {
	return p.download("/api/v1/clients/"+url.PathEscape(p.who.Client)+"/history", "application/x-ndjson", "history.ndjson")
}

// historyEvent shows one event with what its reader's browser needs to verify it.
func (p *page) historyEvent() error {
	ctx := p.r.Context()
	ordinal, err := strconv.ParseInt(p.r.PathValue("ordinal"), 10, 64)
	if err != nil || ordinal < 0 {
		return &kindred.Error{Status: http.StatusNotFound, Detail: say("history.events_are_counted_from")}
	}
	params := kindred.ListHistoryParams{Limit: new(int64(1))}
	if ordinal > 0 {
		params.After = new(ordinal - 1)
	}
	if p.who.has("admin") {
		params.Personal = "open"
	}
	found, err := p.api.History.ListPage(ctx, params)
	if err != nil {
		return err
	}
	if len(found.Data) == 0 || found.Data[0].Ordinal != ordinal {
		return &kindred.Error{Status: http.StatusNotFound, Detail: say("history.the_history_does_not")}
	}
	ask := kindred.ProveHistoryParams{Ordinal: &ordinal}
	if kept, err := strconv.ParseInt(p.r.URL.Query().Get("from_size"), 10, 64); err == nil && kept > 0 {
		ask.FromSize = &kept
	}
	proof, err := p.api.History.Prove(ctx, ask)
	if err != nil {
		return err
	}
	keys, err := p.api.History.GetAuditJWKS(ctx)
	if err != nil {
		return err
	}
	material, err := json.Marshal(map[string]any{"event": found.Data[0], "proof": proof, "keys": keys, "client": p.who.Client})
	if err != nil {
		return err
	}
	return p.show("history-event", "History", say("history_event.event", number(ordinal)), map[string]any{
		"Event": found.Data[0], "Actors": p.actors(), "Proof": proof, "Material": string(material), "Kept": ask.FromSize, "Last": ordinal+1 >= proof.Size,
		"Before": ordinal - 1, "After": ordinal + 1,
	})
}

// stateColumns are what a table of a kind of things holds.
var stateColumns = map[kindred.StateKind][2]string{
	kindred.StateKindUsers: {say("common.user"), say("common.traits")}, kindred.StateKindWebhooks: {say("common.url"), say("common.state")},
	kindred.StateKindCampaigns: {say("common.name"), say("history_at.state_and_spent")}, kindred.StateKindClusters: {say("common.name"), say("common.users")},
	kindred.StateKindConsentLayers: {say("common.name"), say("common.traits")}, kindred.StateKindSegments: {say("common.name"), say("common.rule")},
	kindred.StateKindAPIKeys: {say("common.name"), say("common.may")},
}

// historyAt shows what the client had at a time of the past.
func (p *page) historyAt() error {
	asked := p.r.URL.Query()
	kind := cmp.Or(kindred.StateKind(asked.Get("kind")), kindred.StateKindUsers)
	data := map[string]any{"Asked": asked, "Kind": string(kind), "Columns": stateColumns[kind]}
	if text := asked.Get("at"); text != "" {
		at, err := time.ParseInLocation(typedLayout, text, zoneOf(p.r))
		if err != nil {
			p.refused = problemOf(invalid("at", say("history.this_must_be_a")))
			return p.show("history-at", "History", say("titles.as_it_was"), data)
		}
		if drawLater := later("history-at", asked, "past"); drawLater != "" { // it is built from the log
			data["Later"] = drawLater
			return p.show("history-at", "History", say("titles.as_it_was"), data)
		}
		found, err := p.api.History.GetStatePage(p.r.Context(), kindred.GetHistoryStateParams{
			At: at.UTC().Format(time.RFC3339), Kind: kind, Limit: new(int64(pageOf)), Cursor: asked.Get("cursor"),
		})
		if err != nil {
			if refused := problemOf(err); refused.Field("at") != "" {
				p.refused = refused
				return p.show("history-at", "History", say("titles.as_it_was"), data)
			}
			if data["NoState"], err = notNow(err); err != nil {
				return err
			}
			return p.show("history-at", "History", say("titles.as_it_was"), data)
		}
		data["State"], data["Next"] = found, next("history-at", asked, found.NextCursor)
	}
	return p.show("history-at", "History", say("titles.as_it_was"), data)
}
