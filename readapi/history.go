package readapi

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"kindred/domain/fault"
	"kindred/eventstore"
	"kindred/eventstore/audit"
	"kindred/httpapi"
	"kindred/projections"
	"kindred/projections/auditing"
)

// auditKeysFor is how long the audit keys may be kept.
const auditKeysFor = "public, max-age=300"

// GetAuditJWKS publishes the keys that verify heads of histories.
func (a *API) GetAuditJWKS(ctx context.Context, _ httpapi.GetAuditJWKSRequestObject) (httpapi.GetAuditJWKSResponseObject, error) {
	published, err := a.History.Published(ctx)
	if err != nil {
		return nil, err
	}
	set := httpapi.JWKS{Keys: make([]httpapi.JWK, len(published))}
	for i, key := range published {
		if err := json.Unmarshal(key, &set.Keys[i]); err != nil {
			return nil, fmt.Errorf("read an audit key: %w", err)
		}
	}
	return httpapi.GetAuditJWKS200JSONResponse{
		Body:    set,
		Headers: httpapi.GetAuditJWKS200ResponseHeaders{CacheControl: auditKeysFor},
	}, nil
}

// ListHistory shows what happened to the client, page by page or as a whole.
func (a *API) ListHistory(ctx context.Context, r httpapi.ListHistoryRequestObject) (httpapi.ListHistoryResponseObject, error) {
	client, eventual := asked(ctx)
	p := r.Params
	open := httpapi.Or(p.Personal, "") == httpapi.PersonalOpen
	if open && !httpapi.PrincipalFrom(ctx).May("admin") {
		return nil, fault.New(fault.Forbidden, "missing_scope", "Opening what is sealed takes a token with the scope admin.")
	}
	f := projections.Filter{
		Stream: httpapi.Or(p.Stream, ""), Type: httpapi.Or(p.Type, ""), Actor: httpapi.Or(p.Actor, ""),
		From: httpapi.Or(p.From, time.Time{}), To: httpapi.Or(p.To, time.Time{}), After: httpapi.Or(p.After, -1),
		Newest: httpapi.Or(p.Order, httpapi.OrderAsc) == httpapi.OrderDesc,
	}
	if httpapi.CallFrom(ctx).Export {
		if f != (projections.Filter{After: -1}) || p.Limit != nil || p.Cursor != nil || p.Data != nil {
			return nil, fault.NewInvalid(fault.Field{Detail: "An export is the whole history: it takes no filters, limit or cursor, and holds all data."})
		}
		return httpapi.Export{Now: a.History.Now, Write: func(w io.Writer) error {
			return a.History.Serve(ctx, client, open, w)
		}}, nil
	}
	list := filtered("history", f.Stream, f.Type, f.Actor, f.From.Format(time.RFC3339Nano), f.To.Format(time.RFC3339Nano),
		strconv.FormatInt(f.After, 10))
	if f.Newest {
		list = filtered(list, string(httpapi.OrderDesc))
	}
	page, err := a.page(client, list, p.Limit, p.Cursor)
	if err != nil {
		return nil, err
	}
	if page.After != eventstore.Start {
		from := &f.After
		if f.Newest {
			from = &f.Below
		}
		if *from, err = strconv.ParseInt(string(page.After), 10, 64); err != nil {
			return nil, errCursor()
		}
	}
	found, more, err := a.History.Page(ctx, client, eventual, f, page.Limit, auditing.Shown{Data: httpapi.Or(p.Data, true), Open: open})
	if err != nil {
		return nil, err
	}
	found, next := cut(a, client, list, page, found, (*audit.Event).Size, func(e audit.Event) eventstore.Position {
		return eventstore.Position(strconv.FormatInt(*e.Ordinal, 10))
	})
	if next == nil && more != nil { // there may be more behind those that were looked at
		next = new(a.Cursors.Encode(client, list, strconv.FormatInt(*more, 10)))
	}
	answer := httpapi.ListHistory200JSONResponse{Data: make([]httpapi.HistoryEvent, len(found)), NextCursor: next}
	for i, e := range found {
		if answer.Data[i], err = historyEvent(e); err != nil {
			return nil, err
		}
	}
	return answer, nil
}

func historyEvent(e audit.Event) (httpapi.HistoryEvent, error) {
	body := httpapi.HistoryEvent{
		Ordinal: *e.Ordinal, Position: string(e.Position), ID: httpapi.OrNull(string(e.ID)), Type: httpapi.OrNull(e.Type),
		Version: httpapi.OrNull(e.Version), Stream: httpapi.OrNull(string(e.Stream)), Revision: int64(e.Revision), Actor: httpapi.OrNull(e.Actor),
		CausationID: httpapi.OrNull(string(e.Causation)), CorrelationID: httpapi.OrNull(e.Correlation), Data: e.Data, Meta: e.Meta,
		Hash: hexOf(e.Hash), Erased: e.Erased, Missing: httpapi.OrNull(e.Missing),
		RecordedAt: httpapi.TimeOrNull(httpapi.OrNull(e.RecordedAt)),
	}
	if e.Personal == nil {
		return body, nil
	}
	personal, err := json.Marshal(e.Personal)
	if err == nil {
		body.Personal = new(httpapi.HistoryPersonal)
		err = json.Unmarshal(personal, body.Personal)
	}
	if err != nil {
		err = fmt.Errorf("show event %d: %w", *e.Ordinal, err)
	}
	return body, err
}

// ProveHistory proves what is in the history.
func (a *API) ProveHistory(ctx context.Context, r httpapi.ProveHistoryRequestObject) (httpapi.ProveHistoryResponseObject, error) {
	client, eventual := asked(ctx)
	proof, err := a.History.Prove(ctx, client, eventual, r.Params.Ordinal, r.Params.FromSize)
	if err != nil {
		return nil, err
	}
	answer := httpapi.ProveHistory200JSONResponse{
		Head: proof.JWS, Size: proof.Size, Root: hexOf(proof.Root),
		Ordinal: r.Params.Ordinal, Inclusion: each(proof.Inclusion, hexOf),
		FromSize: r.Params.FromSize, Consistency: each(proof.Consistency, hexOf),
	}
	if r.Params.Ordinal != nil {
		answer.Hash = new(hexOf(proof.Event))
	}
	return answer, nil
}

func hexOf(h audit.Hash) string { return hex.EncodeToString(h[:]) }
