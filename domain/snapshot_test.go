package domain_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"kindred/domain"
	"kindred/domain/event"
	"kindred/testkit"
)

// What a snapshot leaves out would be forgotten once a stream is long: whatever an event
// of the stream changes, its snapshot says.
func TestSnapshotsSayAllThatEventsChange(t *testing.T) {
	saysAll[domain.Webhook](t, "webhook.subscribed", "webhook.")
	saysAll[domain.Client](t, "client.signed_up", "client.", "member.")
	saysAll[domain.Segments](t, "segment.defined", "segment.")
}

func saysAll[T any, A interface {
	aggregate[T]
	Snapshot() event.Event
}](t *testing.T, opening string, prefixes ...string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(event.All().Types())) {
		if !slices.ContainsFunc(prefixes, func(of string) bool { return strings.HasPrefix(name, of) }) {
			continue
		}
		var state, again T
		A(&state).Apply(sample(t, opening))
		A(&state).Apply(sample(t, name))
		snapshot := A(&state).Snapshot()
		if snapshot == nil { // nothing is left
			continue
		}
		A(&again).Apply(snapshot)
		if diff := cmp.Diff(state, again, cmpopts.EquateEmpty(), cmp.AllowUnexported(domain.Client{}, domain.Segments{}),
			cmpopts.IgnoreFields(domain.Webhook{}, "Removed"),                                                  // nothing follows
			cmpopts.IgnoreFields(domain.Client{}, "Abandoned", "Deleted", "barred"),                            // nor here; barred are those since the snapshot
			cmpopts.IgnoreFields(domain.Client{}, "length"), cmpopts.IgnoreFields(domain.Segments{}, "length"), // the snapshot is one more
		); diff != "" {
			t.Errorf("of %s a snapshot says\n%s", name, diff)
		}
	}
}

// sample is the newest one that domain/event/testdata has of a type.
func sample(t *testing.T, name string) event.Event {
	t.Helper()
	version := event.All().Types()[name]
	data := testkit.Must(os.ReadFile(fmt.Sprintf("event/testdata/%s.v%d.json", name, version)))(t)
	e := testkit.Must(event.All().Decode(name, version, data))(t)
	if personal, ok := e.(event.PersonalData); ok {
		for _, field := range personal.Personal() {
			*field.Value = *private(field.Name)
		}
	}
	return e
}
