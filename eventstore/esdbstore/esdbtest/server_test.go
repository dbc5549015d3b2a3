package esdbtest_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/google/uuid"

	"kindred/eventstore/esdbstore/esdbtest"
)

// client is the official client, which knows nothing of how the server is played.
func client(t *testing.T, server *esdbtest.Server) *esdb.Client {
	t.Helper()
	config, err := esdb.ParseConnectionString(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	config.Logger = nil
	c, err := esdb.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // never fails
	return c
}

func event(kind, data string) esdb.EventData {
	return esdb.EventData{EventID: uuid.New(), EventType: kind, ContentType: esdb.ContentTypeJson, Data: []byte(data), Metadata: []byte(`{"m":1}`)}
}

// told writes what a reader gets as "type@revision".
func told(t *testing.T, stream *esdb.ReadStream, err error) (string, []esdb.Position) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var text []string
	var positions []esdb.Position
	for {
		e, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return strings.Join(text, " "), positions
		}
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, e.Event.EventType+"="+string(e.Event.Data)+string(e.Event.UserMetadata))
		positions = append(positions, e.Event.Position)
	}
}

func TestTheOfficialClientAppendsAndReads(t *testing.T) {
	server := esdbtest.Start(t)
	c, ctx := client(t, server), t.Context()
	a, b := event("a", "1"), event("b", "2")

	first, err := c.AppendToStream(ctx, "s", esdb.AppendToStreamOptions{ExpectedRevision: esdb.NoStream{}}, a, b)
	if err != nil || first.NextExpectedVersion != 1 {
		t.Fatalf("append: %+v, %v", first, err)
	}
	again, err := c.AppendToStream(ctx, "s", esdb.AppendToStreamOptions{ExpectedRevision: esdb.NoStream{}}, a, b)
	if err != nil || *again != *first {
		t.Errorf("the same again: %+v, %v, want %+v", again, err, first)
	}
	for _, expected := range []esdb.ExpectedRevision{esdb.NoStream{}, esdb.Revision(0), esdb.Revision(7)} {
		_, err := c.AppendToStream(ctx, "s", esdb.AppendToStreamOptions{ExpectedRevision: expected}, event("c", "3"))
		var refusal *esdb.Error
		if !errors.As(err, &refusal) || refusal.Code() != esdb.ErrorCodeWrongExpectedVersion || !strings.Contains(err.Error(), "got '1'") {
			t.Errorf("append after %+v: %v", expected, err)
		}
	}

	stream, err := c.ReadStream(ctx, "s", esdb.ReadStreamOptions{}, 10)
	if text, _ := told(t, stream, err); text != `a=1{"m":1} b=2{"m":1}` {
		t.Errorf("forwards: %s", text)
	}
	stream, err = c.ReadStream(ctx, "s", esdb.ReadStreamOptions{Direction: esdb.Backwards, From: esdb.End{}}, 1)
	if text, _ := told(t, stream, err); text != `b=2{"m":1}` {
		t.Errorf("backwards: %s", text)
	}
	stream, err = c.ReadAll(ctx, esdb.ReadAllOptions{}, 100)
	text, positions := told(t, stream, err)
	if !strings.HasPrefix(text, "$UserCreated={} $statsCollected={} ") || !strings.HasSuffix(text, `a=1{"m":1} b=2{"m":1}`) {
		t.Errorf("all: %s", text)
	}
	last := positions[len(positions)-1]
	if last.Commit != first.CommitPosition || last.Prepare != first.PreparePosition {
		t.Errorf("the append ended at %+v, its last event is at %+v", first, last)
	}
	stream, err = c.ReadAll(ctx, esdb.ReadAllOptions{From: last}, 100)
	if text, _ := told(t, stream, err); text != `b=2{"m":1}` {
		t.Errorf("from a position on, that included: %s", text)
	}
	stream, err = c.ReadAll(ctx, esdb.ReadAllOptions{Direction: esdb.Backwards, From: last}, 1)
	if text, _ := told(t, stream, err); text != `a=1{"m":1}` {
		t.Errorf("from before a position backwards: %s", text)
	}

	stream, err = c.ReadStream(ctx, "none", esdb.ReadStreamOptions{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	var missing *esdb.Error
	if _, err := stream.Recv(); !errors.As(err, &missing) || missing.Code() != esdb.ErrorCodeResourceNotFound {
		t.Errorf("a stream that does not exist: %v", err)
	}
}

func TestTheOfficialClientFollows(t *testing.T) {
	server := esdbtest.Start(t)
	c := client(t, server)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	add := func(data string) {
		t.Helper()
		if _, err := c.AppendToStream(ctx, "s", esdb.AppendToStreamOptions{ExpectedRevision: esdb.Any{}}, event("a", data)); err != nil {
			t.Fatal(err)
		}
	}
	for range 40 { // a system event before each of them: enough for a checkpoint
		add("0")
	}
	sub, err := c.SubscribeToAll(ctx, esdb.SubscribeToAllOptions{From: esdb.Start{}, Filter: esdb.ExcludeSystemEventsFilter()})
	if err != nil {
		t.Fatal(err)
	}
	events, checkpoints := 0, 0
	for caughtUp := false; !caughtUp; {
		switch e := sub.Recv(); {
		case e.EventAppeared != nil:
			events++
		case e.CheckPointReached != nil:
			checkpoints++
		case e.CaughtUp != nil:
			caughtUp = true
		default:
			t.Fatalf("unexpected: %+v", e)
		}
	}
	if events != 40 || checkpoints != 1 {
		t.Errorf("%d events and %d checkpoints, want 40 and 1", events, checkpoints)
	}
	add("live")
	if e := sub.Recv(); e.EventAppeared == nil || string(e.EventAppeared.Event.Data) != "live" {
		t.Errorf("live: %+v", e)
	}
	server.DropSubscriptions()
	if e := sub.Recv(); e.SubscriptionDropped == nil {
		t.Errorf("dropped: %+v", e)
	}
}

func TestTheOfficialClientMeetsTrouble(t *testing.T) {
	server := esdbtest.StartCluster(t, 2)
	server.Late(0, 0) // that client does not look before it repeats
	c := client(t, server)
	a := event("a", "1")
	add := func() (*esdb.WriteResult, error) {
		return c.AppendToStream(t.Context(), "s", esdb.AppendToStreamOptions{ExpectedRevision: esdb.NoStream{}}, a)
	}
	var trouble *esdb.Error
	server.Play(esdbtest.Refused)
	if _, err := add(); !errors.As(err, &trouble) || trouble.Code() != esdb.ErrorUnavailable {
		t.Errorf("refused: %v", err)
	}
	server.Play(esdbtest.Lost)
	if _, err := add(); !errors.As(err, &trouble) {
		t.Errorf("lost: %v", err)
	}
	if result, err := add(); err != nil || result.NextExpectedVersion != 0 {
		t.Errorf("the same again: %+v, %v", result, err)
	}
	server.Elect(1)
	// The client is told, or has lost its connection, and then finds the new one.
	for tries := 1; ; tries++ {
		_, err := add()
		if err == nil {
			break
		}
		if !errors.As(err, &trouble) || tries == 10 {
			t.Fatalf("with another leader: %v", err)
		}
	}
	server.Kill(1)
	server.Elect(0)
	if _, err := add(); err == nil {
		t.Error("a dead node answered")
	}
	server.Return(t, 1)
}
