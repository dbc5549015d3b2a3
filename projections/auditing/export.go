package auditing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/audit"
	"kindred/eventstore/seal"
	"kindred/panics"
	"kindred/projections"
	"kindred/projections/readmodel"
)

// Shown says what a page holds of each event beside its envelope.
type Shown struct {
	Data bool // as it is stored
	Open bool // what is sealed in it, opened
}

// Page returns events of a client that a filter selects, up to the one that does not
// fit on a page any more. More is the ordinal after which to go on where there may be
// more although they are fewer than limit.
// Faults: building, overloaded, quarantined, stale.
func (a *Auditor) Page(ctx context.Context, client id.Client, eventual bool, f projections.Filter, limit int, shown Shown) (
	events []audit.Event, more *int64, err error,
) {
	asked := a.Now()
	entries, more, err := a.History.List(ctx, client, eventual, f, limit)
	if err != nil {
		return nil, nil, err
	}
	events = make([]audit.Event, 0, len(entries))
	for len(events) < len(entries) && readmodel.Fitting(events, (*audit.Event).Size) == len(events) {
		next := entries[len(events):min(len(events)+readAtOnce, len(entries))]
		records, err := projections.Events(ctx, a.Log.Store, next)
		if err != nil {
			return nil, nil, err
		}
		for i, entry := range next {
			e, err := a.event(ctx, records[i], entry, shown.Open, asked)
			if err != nil {
				return nil, nil, err
			}
			if !shown.Data {
				e.Data = ""
			}
			events = append(events, e)
		}
	}
	if len(events) < len(entries) {
		more = events[len(events)-1].Ordinal
	}
	return events, more, nil
}

const (
	// limit: models | events of a page of an export, read one by one | {readAtOnce}
	readAtOnce = 16        // events of a page
	firstPage  = 100       // events
	exportPage = 1000      // events at most
	pageSize   = 512 << 10 // bytes that a page should hold, judged by the one before
	headsPage  = 100
)

// Exporting is how far an export has come.
type Exporting struct{ Done, Total int64 }

// Export writes all that happened to a client, as NDJSON: each event, the
// heads that were signed where they belong, and as the last line a head that
// is signed now. Where the history is not what was signed before, that line is
// left out, and Export fails after all others. Its memory is bounded. Report,
// which may be nil, is called after each page.
// Faults: building, history_changed, overloaded, quarantined, stale.
func (a *Auditor) Export(ctx context.Context, client id.Client, open bool, to io.Writer, report func(Exporting)) error {
	asked := a.Now()
	g, err := a.growth(ctx, client, false)
	if err != nil {
		return err
	}
	x := export{Auditor: a, client: client, open: open, asked: asked, to: audit.NewWriter(to), size: g.tree.Size}
	err = x.pages(ctx, func() {
		if report != nil {
			report(Exporting{Done: x.next, Total: x.size})
		}
	})
	if err != nil {
		return fmt.Errorf("export the history of %s after event %d: %w", client, x.next, err)
	}
	head, err := a.sign(ctx, g)
	if err != nil {
		return err
	}
	return x.to.Head(head.JWS)
}

// Serve is Export for the answer to a request, which nobody asks for again once it has begun.
// Faults: building, history_changed, overloaded, quarantined, stale.
func (a *Auditor) Serve(ctx context.Context, client id.Client, open bool, to io.Writer) error {
	waits := *a
	waits.History.AtOnce = false
	return waits.Export(ctx, client, open, to, nil)
}

// export is under way: all events below next are written.
type export struct {
	*Auditor
	client id.Client
	open   bool
	asked  time.Time // who was erased before is not opened
	to     audit.Writer
	size   int64
	next   int64
	heads  []storedHead // to come
	headed int64        // heads up to this size are read
}

type storedHead struct {
	Size int64
	JWS  string
}

const selectHeads = `
SELECT size, jws FROM public.audit_heads WHERE client = $1 AND size > $2 AND size < $3 ORDER BY size LIMIT $4`

// fetched is a page of entries, with what the log holds up to the last of them.
type fetched struct {
	entries []projections.Entry
	records []eventstore.Record
}

// pages writes all pages; the next is fetched while one is written.
func (x *export) pages(ctx context.Context, wrote func()) error {
	group, ctx := panics.WithContext(ctx)
	pages := make(chan fetched, 1)
	group.Go(func() error {
		defer close(pages)
		var after eventstore.Position
		limit := firstPage
		for next := int64(0); next < x.size; {
			page, err := x.fetch(ctx, next, after, limit)
			if err != nil {
				return err
			}
			limit = min(2*limit, eventstore.Fitting(page.records, pageSize), exportPage)
			select {
			case pages <- page:
			case <-ctx.Done():
				return ctx.Err()
			}
			last := page.entries[len(page.entries)-1]
			next, after = last.Ordinal+1, last.Position
		}
		return nil
	})
	group.Go(func() error {
		for page := range pages {
			if err := x.write(ctx, page); err != nil {
				return err
			}
			wrote()
		}
		return nil
	})
	return group.Wait()
}

// fetch reads a page of what comes after a place.
func (x *export) fetch(ctx context.Context, next int64, after eventstore.Position, limit int) (page fetched, err error) {
	page.entries, err = x.History.ListKnown(ctx, x.client, projections.Filter{After: next - 1, Below: x.size}, limit)
	if err == nil && len(page.entries) == 0 {
		err = fault.New(fault.Conflict, "history_changed", "The history has lost events behind the service's back.")
	}
	if err != nil {
		return fetched{}, err
	}
	return x.read(ctx, page.entries, after)
}

func (x *export) write(ctx context.Context, page fetched) error {
	records := page.records
	for _, entry := range page.entries {
		for len(records) > 0 && records[0].Position < entry.Position {
			if err := x.to.Event(audit.NewEvent(records[0], nil, audit.Hash{})); err != nil {
				return err
			}
			records = records[1:]
		}
		var record eventstore.Record
		if len(records) > 0 && records[0].Position == entry.Position {
			record, records = records[0], records[1:]
		}
		e, err := x.event(ctx, record, entry, x.open, x.asked)
		if err != nil {
			return err
		}
		if err := x.to.Event(e); err != nil {
			return err
		}
		x.next = entry.Ordinal + 1
		if err := x.writeHeads(ctx); err != nil {
			return err
		}
	}
	return nil
}

// writeHeads writes the heads that commit to exactly what is written.
func (x *export) writeHeads(ctx context.Context) error {
	if len(x.heads) == 0 && x.headed < x.size {
		rows, _ := x.History.Pool.Query(ctx, selectHeads, string(x.client), x.headed, x.size, headsPage) // what it fails with, its rows end with
		var err error
		if x.heads, err = pgx.CollectRows(rows, pgx.RowToStructByPos[storedHead]); err != nil {
			return err
		}
		x.headed = x.size
		if len(x.heads) == headsPage {
			x.headed = x.heads[headsPage-1].Size
		}
	}
	for len(x.heads) > 0 && x.heads[0].Size <= x.next {
		if err := x.to.Head(x.heads[0].JWS); err != nil {
			return err
		}
		x.heads = x.heads[1:]
	}
	return nil
}

// read reads what the log holds at entries, and what it holds between them and
// should not: where that is large, at the first of them alone. What it has lost is not
// among it.
func (x *export) read(ctx context.Context, entries []projections.Entry, after eventstore.Position) (fetched, error) {
	store, ok := x.Log.Store.(eventstore.ClientReader)
	if !ok {
		records, err := projections.Events(ctx, x.Log.Store, entries)
		return fetched{entries[:len(records)], slices.DeleteFunc(records, func(r eventstore.Record) bool { return r.ID == "" })}, err
	}
	var all []eventstore.Record
	for end := entries[len(entries)-1].Position; after < entries[0].Position; {
		page, err := store.ReadClient(ctx, x.client, after, end, exportPage)
		if err != nil || len(page) == 0 {
			return fetched{entries, all}, err
		}
		all, after = append(all, page...), page[len(page)-1].Position
	}
	if beyond := slices.IndexFunc(entries, func(e projections.Entry) bool { return e.Position > after }); beyond >= 0 {
		entries = entries[:beyond]
	}
	return fetched{entries, all}, nil
}

func (a *Auditor) event(ctx context.Context, r eventstore.Record, entry projections.Entry, open bool, asked time.Time) (audit.Event, error) {
	if r.ID == "" {
		return audit.Event{Ordinal: &entry.Ordinal, Position: entry.Position, Hash: entry.Hash, Missing: true}, nil
	}
	e := audit.NewEvent(r, &entry.Ordinal, entry.Hash)
	if !open {
		return e, nil
	}
	return e, a.openInto(ctx, &e, r, asked)
}

// secret names the sealed fields that nobody is shown: they are no personal
// data.
func secret(field string) bool {
	return field == "secret" || field == "headers" || field == "private_key" || field == "password_hash"
}

func (a *Auditor) openInto(ctx context.Context, e *audit.Event, r eventstore.Record, asked time.Time) error {
	recorded, err := a.Log.Decode(r)
	if err != nil {
		return nil //nolint:nilerr // shown as it is stored; what cannot be read has nothing to open
	}
	bearer, ok := recorded.Event.(event.PersonalData)
	if !ok {
		return nil
	}
	for _, field := range bearer.Personal() {
		if field.Value == nil || secret(field.Name) {
			continue
		}
		plain, err := a.Log.OpenAsOf(ctx, asked, recorded, field.Name)
		if errors.Is(err, seal.ErrErased) {
			e.Erased = append(e.Erased, field.Name)
			continue
		}
		if err != nil {
			return err
		}
		if e.Personal == nil {
			e.Personal = map[string]json.RawMessage{}
		}
		if field.Name != "traits" {
			if plain, err = json.Marshal(string(plain)); err != nil {
				return err
			}
		}
		e.Personal[field.Name] = plain
	}
	return nil
}
