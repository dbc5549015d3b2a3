package segments_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/projections/projectionstest"
	"kindred/projections/segments"
)

// singly applies all events of each client by themselves.
type singly struct{ segments.Model }

func (singly) ApplyTogether(_ context.Context, _ pgx.Tx, batch []eventstore.Recorded) ([]eventstore.Recorded, error) {
	return batch, nil
}

func TestClientsWithoutSegmentsAreAppliedTogetherAsTheyAreSingly(t *testing.T) {
	w := projectionstest.New(t)
	random := rand.New(rand.NewPCG(1, 2))
	clients := []id.Client{w.Acme, w.Bolt, id.Next[id.Client](w.IDs), id.Next[id.Client](w.IDs)}
	users := map[id.Client][]id.User{}
	for n := range 200 {
		client := clients[random.IntN(len(clients))]
		of := users[client]
		switch what := random.IntN(20); {
		case len(of) == 0 || what < 10:
			users[client] = append(of, w.Create(client, fmt.Sprint("u", n), `{"n":1}`))
		case what < 18:
			w.Change(client, of[random.IntN(len(of))], fmt.Sprintf(`{"n":%d}`, n))
		case client != w.Bolt:
			w.Erase(client, of[len(of)-1])
			users[client] = of[:len(of)-1]
		}
	}
	history := w.History()
	var sizes []int
	for left := len(history); left > 0; left -= sizes[len(sizes)-1] {
		sizes = append(sizes, min(left, 1+random.IntN(60)))
	}
	tables := projectionstest.EmptyTables(t, w, segments.New(w.Reader))
	together := tables.After(t, sizes, history)
	tables.Model = singly{segments.New(w.Reader)}
	want := tables.After(t, slices.Repeat([]int{1}, len(history)), history)
	for table, rows := range want {
		if !slices.Equal(rows, together[table]) {
			t.Errorf("%s: %d rows singly, %d together, or others", table, len(rows), len(together[table]))
		}
	}
	if len(together["segment_users"]) < 50 {
		t.Errorf("%d users", len(together["segment_users"]))
	}
}
