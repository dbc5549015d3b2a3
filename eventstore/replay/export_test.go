package replay_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/audit"
	"kindred/eventstore/memstore"
	"kindred/eventstore/replay"
	"kindred/testkit"
)

// exportOf writes an export of events, with a head of its own key.
func exportOf(t *testing.T, client id.Client, records []eventstore.Record, change func(n int, e *audit.Event)) []byte {
	t.Helper()
	var out bytes.Buffer
	w, tree := audit.NewWriter(&out), audit.Tree{}
	for n, r := range records {
		hash := testkit.Must(eventstore.Hash(r))(t)
		ordinal := int64(n)
		e := audit.NewEvent(r, &ordinal, hash)
		if change != nil {
			change(n, &e)
		}
		if err := w.Event(e); err != nil {
			t.Fatal(err)
		}
		tree.Append(hash, nil)
	}
	key := testkit.Must(audit.NewKey(rand.Reader))(t)
	jws := testkit.Must(key.Sign(audit.Head{Client: client, Size: tree.Size, Root: tree.Root()}))(t)
	if err := w.Head(jws); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func happened(client id.Client, n int) []eventstore.Record {
	ids := id.Random(rand.Reader)
	records := make([]eventstore.Record, n)
	for i := range records {
		at := time.Date(2026, 1, 1, 0, 0, i, 0, time.UTC)
		records[i] = eventstore.Record{
			Position: eventstore.Position(fmt.Sprintf("%016x", i+1)), Stream: eventstore.Stream(fmt.Sprintf("some-%d", i%3)),
			Revision: eventstore.Revision(i / 3),
			Proposed: eventstore.Proposed{
				ID: id.Next[id.Event](ids), Type: "some.thing", Version: 1, Client: client, RecordedAt: at, Data: fmt.Appendf(nil, `{"n":%d}`, i),
				Meta: fmt.Appendf(nil, `{"client":%q,"version":1,"recorded_at":%q,"actor":"somebody"}`, client, at.Format(time.RFC3339Nano)),
			},
		}
	}
	return records
}

func copied(ctx context.Context, from replay.Source) (replay.Trees, *memstore.Store, error) {
	store := memstore.New("copy")
	err := replay.Copy(ctx, from, &eventstore.Log{Store: store}, func(context.Context, int, eventstore.Position) error { return nil })
	if err != nil {
		return nil, nil, err
	}
	end, err := store.Head(ctx)
	if err != nil {
		return nil, nil, err
	}
	trees, err := replay.Grow(ctx, &replay.Log{Store: store, UpTo: end}, nil)
	return trees, store, err
}

func TestAnExportIsReplayedOrRefused(t *testing.T) {
	t.Parallel()
	ids := id.Random(rand.Reader)
	client, other := id.Next[id.Client](ids), id.Next[id.Client](ids)
	records := happened(client, 2500)
	whole := exportOf(t, client, records, nil)
	trees, store, err := copied(t.Context(), replay.NewExport(bytes.NewReader(whole)))
	if err != nil || trees.Events() != 2500 {
		t.Fatalf("%d events, %v", trees.Events(), err)
	}
	theirs, err := replay.Grow(t.Context(), replay.NewExport(bytes.NewReader(whole)), nil)
	if err != nil || len(trees.Unlike(theirs)) > 0 {
		t.Errorf("unlike: %v %v", trees.Unlike(theirs), err)
	}
	changed := happened(client, 2500)
	copy(changed, records[:1234])
	trees, _, err = copied(t.Context(), replay.NewExport(bytes.NewReader(exportOf(t, client, changed, nil))))
	if err != nil || len(trees.Unlike(theirs)) != 1 {
		t.Errorf("another log is alike: %v", err)
	}
	end := testkit.Must(store.Head(t.Context()))(t)
	d, found, err := replay.First(t.Context(), client, &replay.Log{Store: store, UpTo: end},
		replay.NewExport(bytes.NewReader(exportOf(t, client, changed, nil))))
	if err != nil || !found || d != (replay.Difference{Ordinal: 1234, Here: records[1234].ID, There: changed[1234].ID}) {
		t.Errorf("the first difference: %+v %t %v", d, found, err)
	}

	foreign := append(happened(client, 3)[:2:2], happened(other, 3)[2])
	amid := happened(client, 3)
	amid[1] = happened(other, 3)[1]
	lines := bytes.SplitAfter(exportOf(t, client, happened(client, 3), nil), []byte("\n"))
	otherHead := bytes.SplitAfter(exportOf(t, client, happened(client, 3), nil), []byte("\n"))[3]
	for what, export := range map[string][]byte{
		"without its head":       whole[:bytes.LastIndexByte(whole[:len(whole)-1], '\n')+1],
		"without its beginning":  whole[bytes.IndexByte(whole, '\n')+1:],
		"with another's head":    exportOf(t, other, records, nil),
		"of nobody":              exportOf(t, "'; DROP TABLE events; --", nil, nil),
		"of two clients":         exportOf(t, client, foreign, nil),
		"with another's event":   exportOf(t, client, amid, nil),
		"of fewer events":        bytes.Join([][]byte{lines[0], lines[1], lines[3]}, nil),
		"with a head of others":  bytes.Join([][]byte{lines[0], lines[1], lines[2], otherHead}, nil),
		"with a changed hash":    exportOf(t, client, records, func(n int, e *audit.Event) { e.Hash = audit.Hash{} }),
		"with a changed event":   exportOf(t, client, records, func(n int, e *audit.Event) { e.Data = fmt.Sprint(n) }),
		"with a lost event":      exportOf(t, client, records, func(n int, e *audit.Event) { e.Missing = n == 7 }),
		"with an inserted event": exportOf(t, client, records, func(n int, e *audit.Event) { e.Ordinal = map[bool]*int64{true: e.Ordinal}[n != 7] }),
		"with a broken line":     append([]byte("{\n"), whole...),
	} {
		if _, _, err := copied(t.Context(), replay.NewExport(bytes.NewReader(export))); !errors.Is(err, replay.ErrExport) {
			t.Errorf("an export %s: %v", what, err)
		}
	}
}

// Stores that take events a stream at a time are given clients side by side.
func TestAClaimIsCopiedAfterTheOneThatGaveItBack(t *testing.T) {
	t.Parallel()
	ids := id.Random(rand.Reader)
	log := memstore.New("log")
	for claim := range 50 {
		stream := eventstore.ClaimStream(eventstore.SlugClaim, [32]byte{byte(claim)})
		revision := eventstore.NoStream
		for range 2 {
			r := happened(id.Next[id.Client](ids), 1)[0]
			if _, err := log.Append(t.Context(), stream, revision, []eventstore.Proposed{r.Proposed}); err != nil {
				t.Fatal(err)
			}
			revision++
		}
	}
	end := testkit.Must(log.Head(t.Context()))(t)
	trees, _, err := copied(t.Context(), &replay.Log{Store: log, UpTo: end})
	if err != nil || trees.Events() != 100 {
		t.Errorf("%d of 100 events, %v", trees.Events(), err)
	}
}

func TestWhatIsWrongWithTheLinesOfAnExportIsSaid(t *testing.T) {
	t.Parallel()
	client := id.Next[id.Client](id.Random(rand.Reader))
	lines := bytes.SplitAfter(exportOf(t, client, happened(client, 3), nil), []byte("\n"))
	for want, export := range map[string][]byte{
		"event 2: out of order: event 1": bytes.Join([][]byte{lines[0], lines[1], lines[1], lines[2], lines[3]}, nil),
		"event 1: out of order: event 2": bytes.Join([][]byte{lines[0], lines[2], lines[3]}, nil),
		"line 4: longer than the 4 MiB":  append(bytes.Join(lines[:3], nil), bytes.Repeat([]byte("x"), 5<<20)...),
	} {
		_, _, err := copied(t.Context(), replay.NewExport(bytes.NewReader(export)))
		if !errors.Is(err, replay.ErrExport) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
		_, err = audit.Verify(bytes.NewReader(export), audit.Keys{}, nil, func(audit.Finding) {})
		if (err != nil) != strings.Contains(want, "longer") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: verified: %v", want, err)
		}
	}
}
