package e2e

import (
	"errors"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"kindred/eventstore/projector"
	"kindred/testkit"
)

// TestAClientGetsWhatWasLeftOut lets the queue of deliveries refuse events for a
// while, as a release that cannot apply them does.
func TestAClientGetsWhatWasLeftOut(t *testing.T) {
	t.Parallel()
	s := startService(t)
	p := newPairs(s)
	r := receive(t, 200)
	hook := p.subscribe(r.URL, "")
	p.match("ann", "bob")
	if got := p.of(r.next(t)); got != "ann+bob" {
		t.Fatal(got)
	}
	f := openApp(t, s.Config)
	exec := func(sql string) {
		t.Helper()
		if _, err := f.Pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''refused''; END';
		CREATE TRIGGER refuse BEFORE INSERT ON dispatch_queue FOR EACH ROW EXECUTE FUNCTION refuse()`)
	resume := func(name string) (string, error) {
		return tool(t, s.Config, "projections", "resume", name, "--client", string(p.Client.ID))
	}
	p.match("bob", "cat")
	path := p.under("/webhooks/" + string(hook.ID) + "/deliveries")
	testkit.Eventually(t, "an event is left out", func() bool {
		said, err := tool(t, s.Config, "projections", "list")
		if err != nil {
			t.Fatal(err)
		}
		return regexp.MustCompile(`(?m)^ +` + string(p.Client.ID) + ` .*left out evt_\w+ \(match\.computed\): `).MatchString(said)
	})
	want[any](t, http.StatusOK, p.get(path))
	if _, err := resume("dispatcher"); !errors.Is(err, projector.ErrIncomplete) {
		t.Errorf("it is left out no more: %v", err)
	}
	p.match("cat", "dan")
	exec(`DROP FUNCTION refuse CASCADE`)
	p.match("dan", "ann")
	if out, err := resume("dispatcher"); err != nil || !strings.Contains(out, "resumed "+string(p.Client.ID)) {
		t.Fatalf("%v\n%s", err, out)
	}
	p.match("ann", "dan")
	missed := map[string]int{}
	for range 4 {
		missed[p.of(r.next(t))]++
	}
	for _, pair := range []string{"bob+cat", "cat+dan", "dan+ann", "ann+dan"} {
		if missed[pair] != 1 {
			t.Errorf("%s was delivered %d times", pair, missed[pair])
		}
	}
	want[any](t, http.StatusOK, p.get(path))
	p.settled(t, hook, "delivered", 5)
	if n := len(r.got); n != 0 {
		t.Errorf("%d deliveries too many", n)
	}
	for _, name := range []string{"dispatcher", "match_queue", "users"} {
		if _, err := resume(name); err == nil {
			t.Errorf("%s: resumed without a need", name)
		}
	}
}
