package policies

import (
	"bytes"
	"context"
	"crypto/rand"
	"log/slog"
	"testing"

	"kindred/commands"
	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/testkit"
)

// lagging are segments of which the model does not hear that one was restored.
type lagging struct {
	*fixture
	client  id.Client
	segment id.Segment
}

func (l lagging) Restored(context.Context) ([]id.Client, error) { return []id.Client{l.client}, nil }

func (l lagging) RestoredOf(context.Context, id.Client) (segment id.Segment, rule string, changed eventstore.Revision, ok bool, err error) {
	return l.segment, `traits.n > 20`, 0, true, nil
}

// building is a client of which a rule has judged everyone.
type building struct {
	*fixture
	client id.Client
}

func (b building) Building(context.Context) ([]id.Client, error) { return []id.Client{b.client}, nil }

func (building) Build(context.Context, id.Client) (more bool, ready int64, err error) {
	return false, 0, nil
}

// The rows of a client that was deleted go in the background, and nobody is warned meanwhile.
func TestNobodyIsWarnedOfAClientThatWasDeleted(t *testing.T) {
	o, ids := newFixture(t), id.Random(rand.Reader)
	c := o.policies.Commands
	ada := testkit.Must(c.SignUp(t.Context(), commands.Call{}, commands.SignUp{Email: "ada@example.com", CompanyName: "Acme"}))(t)
	call := commands.Call{Client: ada.Client, Member: ada.Member, Actor: string(ada.Member)}
	sandbox := testkit.Must(c.CreateSandbox(t.Context(), call, "ci", 0))(t).Sandbox
	stream := eventstore.SegmentsStream(sandbox)
	origin := eventstore.Origin{Client: sandbox, Actor: "test"}
	defined := event.SegmentDefined{Segment: id.Next[id.Segment](ids), Name: "S", Rule: event.Private([]byte(`traits.n > 20`)), Refers: []id.Segment{}}
	testkit.Must(c.Log.Append(t.Context(), eventstore.NewStreamVersion(stream), origin, ids, defined))(t)
	testkit.Must(c.DeleteSandbox(t.Context(), call, sandbox))(t)
	var log bytes.Buffer
	o.policies.Segments, o.policies.Logger = building{o, sandbox}, slog.New(slog.NewTextHandler(&log, nil))
	if _, err := o.policies.BuildSegments(t.Context()); err != nil || log.Len() > 0 {
		t.Errorf("%v, and %s", err, &log)
	}
}

// However far the model is behind, a segment is restored once, and nobody is warned of what is as it should be.
func TestASegmentIsRestoredOnceThoughTheModelIsBehind(t *testing.T) {
	o := newFixture(t)
	ids := id.Random(rand.Reader)
	client, segment := id.Next[id.Client](ids), id.Next[id.Segment](ids)
	stream := eventstore.SegmentsStream(client)
	if _, err := o.policies.Commands.Log.Append(t.Context(), eventstore.NewStreamVersion(stream), eventstore.Origin{Client: client, Actor: "test"}, ids,
		event.SegmentDefined{Segment: segment, Name: "S", Rule: event.Private([]byte(`traits.n > 20`)), Refers: []id.Segment{}}); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	o.policies.Segments, o.policies.Logger = lagging{o, client, segment}, slog.New(slog.NewTextHandler(&log, nil))
	for range 3 {
		if _, err := o.policies.BuildSegments(t.Context()); err != nil {
			t.Error(err)
		}
	}
	recorded, err := o.store.ReadStream(t.Context(), stream, 0, 10)
	if err != nil || len(recorded) != 2 || log.Len() > 0 {
		t.Errorf("%d events, %v, and %s", len(recorded), err, &log)
	}
}
