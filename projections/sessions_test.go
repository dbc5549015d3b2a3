package projections_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/projections"
	"kindred/projections/projectionstest"
	"kindred/projections/readmodel"
	"kindred/testkit"
)

func TestSessionsLastAsLongAsTheyAreUsed(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Sessions{})
	model := projections.Sessions{Reader: w.Reader}
	w.SignUp(w.Acme, "acme")
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var standing []event.SessionStanding
	members := []id.Member{id.Next[id.Member](w.IDs), id.Next[id.Member](w.IDs)}
	for n, member := range []id.Member{members[0], members[1], members[0]} {
		w.Record(w.Acme, "client-"+string(w.Acme), projectionstest.AddedMember(member, "viewer"))
		one := event.SessionStanding{Session: id.Next[id.Session](w.IDs), Hash: []byte{byte(n)}, OpenedAt: start.Add(time.Duration(n) * time.Hour)}
		standing = append(standing, one)
		stands := []event.SessionStanding{one}
		if n == 2 {
			stands = []event.SessionStanding{standing[0], one}
		}
		w.Record(w.Acme, "access-"+string(member), event.SessionOpened{Member: member, Session: one.Session, Standing: event.AccessStanding{Sessions: stands}})
	}
	listed := func(member id.Member, now time.Time, page readmodel.Page) (which []int) {
		t.Helper()
		for _, s := range testkit.Must(model.List(t.Context(), w.Acme, false, page, member, now))(t) {
			for n, known := range standing {
				if known.Session == s.ID {
					which = append(which, n)
				}
			}
			page.After = s.CreatedPosition
		}
		return which
	}
	wantListed := func(what string, want, got []int) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got): %s", what, diff)
		}
	}
	soon := start.Add(3 * time.Hour)
	wantListed("all", []int{0, 1, 2}, listed("", soon, everything()))
	wantListed("of one", []int{0, 2}, listed(members[0], soon, everything()))
	wantListed("one a page", []int{0}, listed("", soon, readmodel.Page{Limit: 1}))
	if other := testkit.Must(model.List(t.Context(), w.Bolt, false, everything(), "", soon))(t); len(other) != 0 {
		t.Errorf("another client's: %v", other)
	}

	seen := func() time.Time {
		t.Helper()
		return testkit.Must(model.SeenAt(t.Context(), w.Acme, standing[0].Session, standing[0].OpenedAt))(t)
	}
	use := func(now time.Time) {
		t.Helper()
		if err := model.NoteSeen(t.Context(), w.Acme, standing[0].Session, seen(), now); err != nil {
			t.Fatal(err)
		}
	}
	use(start.Add(4 * time.Minute))
	if at := seen(); !at.Equal(start) {
		t.Errorf("seen again within 5 minutes: %s", at)
	}
	use(start.Add(10 * time.Hour))
	use(start.Add(10*time.Hour + 4*time.Minute))
	if at := seen(); !at.Equal(start.Add(10 * time.Hour)) {
		t.Errorf("seen at %s", at)
	}
	wantListed("those that were used", []int{0, 2}, listed("", start.Add(13*time.Hour+30*time.Minute), everything()))
	wantListed("those that were used", []int{0}, listed("", start.Add(21*time.Hour), everything()))
	for n := range 15 {
		use(start.Add(10*time.Hour + time.Duration(n)*11*time.Hour))
	}
	wantListed("before 7 days", []int{0}, listed("", start.Add(7*24*time.Hour-time.Minute), everything()))
	wantListed("after 7 days", nil, listed("", start.Add(7*24*time.Hour), everything()))

	_, err := model.Find(t.Context(), w.Bolt, standing[0].Session, soon)
	projectionstest.WantFault(t, "session_unknown", err)
	found := testkit.Must(model.Find(t.Context(), w.Acme, standing[1].Session, soon))(t)
	if found.Member != members[1] {
		t.Errorf("%+v", found)
	}
	w.Record(w.Acme, "client-"+string(w.Acme), event.MemberRemoved{Member: members[1]})
	wantListed("after a removal", []int{0, 2}, listed("", soon, everything()))
	w.Record(w.Acme, "access-"+string(members[0]), event.SessionEnded{
		Member: members[0], Session: standing[0].Session, Standing: event.AccessStanding{Sessions: standing[2:]},
	})
	wantListed("after the end of one", []int{2}, listed("", soon, everything()))
	standing = append(standing, event.SessionStanding{Session: id.Next[id.Session](w.IDs), Hash: []byte{3}, OpenedAt: soon})
	w.Record(w.Acme, "access-"+string(members[0]), event.SessionOpened{
		Member: members[0], Session: standing[3].Session, Ended: []id.Session{standing[2].Session}, Standing: event.AccessStanding{Sessions: standing[3:]},
	})
	wantListed("after one that took the place of another", []int{3}, listed("", soon, everything()))
	w.Record(w.Acme, "access-"+string(members[0]), event.MemberPasswordSet{
		Member: members[0], PasswordHash: event.Private([]byte("$argon2id$")), Standing: event.AccessStanding{Changes: 1},
	})
	wantListed("after a new password", nil, listed("", soon, everything()))
}

func TestUsesThatNoSessionNeedsAreForgotten(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Sessions{})
	model, now := projections.Sessions{Reader: w.Reader}, time.Now()
	const uses = `
INSERT INTO session_uses (client, session, seen_at)
SELECT 'cli_else', 'ses_' || d || '_' || n, now() - d * interval '1 day' FROM unnest(ARRAY[6, 8]) AS d, generate_series(1, 150) AS n`
	if _, err := w.Pool.Exec(t.Context(), uses); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{151 + 50, 152, 153} { // some at a time
		if err := model.NoteSeen(t.Context(), w.Acme, id.Next[id.Session](w.IDs), time.Time{}, now); err != nil {
			t.Fatal(err)
		}
		var left int
		if err := w.Pool.QueryRow(t.Context(), `SELECT count(*) FROM session_uses`).Scan(&left); err != nil || left != want {
			t.Errorf("%d uses are left, %v; want %d", left, err, want)
		}
	}
}
