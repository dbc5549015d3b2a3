package replay_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"testing"

	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/memstore"
	"kindred/eventstore/replay"
	"kindred/testkit"
)

// Another process may replay into the same database: whoever is told so stops at once.
func TestACopyStopsWhereItIsToldAndAppendsNothingTwice(t *testing.T) {
	t.Parallel()
	client := id.Next[id.Client](id.Random(rand.Reader))
	_, store, err := copied(t.Context(), replay.NewExport(bytes.NewReader(exportOf(t, client, happened(client, 2500), nil))))
	if err != nil {
		t.Fatal(err)
	}
	upTo := testkit.Must(store.ReadAll(t.Context(), eventstore.Start, 1500))(t)[1499].Position
	part, second := func() replay.Source { return &replay.Log{Store: store, UpTo: upTo} }, memstore.New("second")
	stop, noted := errors.New("stop"), 0
	for _, told := range []error{stop, nil} {
		err := replay.Copy(t.Context(), part(), &eventstore.Log{Store: second}, func(_ context.Context, n int, _ eventstore.Position) error {
			noted += n
			return told
		})
		if there := testkit.Must(second.ReadAll(t.Context(), eventstore.Start, 2500))(t); !errors.Is(err, told) || told != nil && len(there) != noted {
			t.Errorf("%d events are copied, %d noted: %v", len(there), noted, err)
		}
	}
	end := testkit.Must(second.Head(t.Context()))(t)
	want, got := testkit.Must(replay.Grow(t.Context(), part(), nil))(t), testkit.Must(replay.Grow(t.Context(), &replay.Log{Store: second, UpTo: end}, nil))(t)
	if want.Events() != 1500 || len(got.Unlike(want)) > 0 {
		t.Errorf("%d of %d events are there, unlike: %v", got.Events(), want.Events(), got.Unlike(want))
	}
}

type away struct{}

var errAway = errors.New("away")

func (away) Next(context.Context, int) ([]eventstore.Record, error) { return nil, errAway }

// A log that cannot be read is not taken for one that has ended.
func TestWhatCannotBeReadIsNoEnd(t *testing.T) {
	t.Parallel()
	store := memstore.New("empty")
	empty := &replay.Log{Store: store}
	_, grown := replay.Grow(t.Context(), away{}, nil)
	_, _, here := replay.First(t.Context(), "cli_1", away{}, empty)
	_, _, there := replay.First(t.Context(), "cli_1", empty, away{})
	copied := replay.Copy(t.Context(), away{}, &eventstore.Log{Store: store}, nil)
	for what, err := range map[string]error{"trees": grown, "here": here, "there": there, "a copy": copied} {
		if !errors.Is(err, errAway) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
