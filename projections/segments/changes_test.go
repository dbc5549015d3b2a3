package segments_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/projections/projectionstest"
	"kindred/projections/readmodel"
	"kindred/testkit"
)

// before does something once before a statement that holds a text is sent.
type before struct {
	text string
	do   func()
	once sync.Once
}

// TraceQueryStart implements [pgx.QueryTracer].
func (b *before) TraceQueryStart(ctx context.Context, _ *pgx.Conn, query pgx.TraceQueryStartData) context.Context {
	if strings.Contains(query.SQL, b.text) {
		b.once.Do(b.do)
	}
	return ctx
}

// TraceQueryEnd implements [pgx.QueryTracer].
func (*before) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// Another rule may begin to count, and somebody come in by it, while changes are read: who follows those of
// the rule of before reads the members again, since those whom the new one named first are told to nobody.
func TestWhoFollowsARuleIsNotToldOfTheNextOne(t *testing.T) {
	t.Parallel()
	w := newSegmentFixture(t)
	random := testkit.Random(t)
	segment := projectionstest.SegmentIDs[0]
	w.Create(w.Acme, "young", `{"n":10}`)
	w.Segment(w.Acme, event.SegmentDefined{Segment: segment, Name: "S", Rule: event.Private([]byte(`traits.n > 20`)), Refers: []id.Segment{}})
	w.Segment(w.Acme, event.SegmentReady{Revision: 0})
	w.Create(w.Acme, "old", `{"n":30}`)
	w.catchUp(random)
	read := func(after eventstore.Position) (int, eventstore.Position, error) {
		found, _, next, err := w.model.Changes(t.Context(), w.Acme, true, segment, false, readmodel.Page{After: after, Limit: 100})
		return len(found), next, err
	}
	n, after, err := read("")
	if err != nil || n != 1 {
		t.Fatalf("%d changes, %v", n, err)
	}
	config := w.Pool.Config()
	config.ConnConfig.Tracer = &before{text: "row_number()", do: func() {
		w.Segment(w.Acme, event.SegmentChanged{Segment: segment, Name: "S", Rule: event.Private([]byte(`traits.n > 5`)), Refers: []id.Segment{}})
		w.Segment(w.Acme, event.SegmentReady{Revision: 2})
		w.Create(w.Acme, "new", `{"n":40}`)
		w.catchUp(random)
	}}
	pool := testkit.Must(pgxpool.NewWithConfig(t.Context(), config))(t)
	t.Cleanup(pool.Close)
	w.model.Pool = pool
	if n, after, err = read(after); !fault.Is(err, "cursor_expired") {
		t.Errorf("%d changes up to %s, %v", n, after, err)
	}
}
