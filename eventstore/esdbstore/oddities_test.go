package esdbstore_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"kindred/eventstore"
	"kindred/eventstore/esdbstore"
	"kindred/eventstore/esdbstore/esdbtest"
)

func TestEventsOfOthersAreNoneOfOurs(t *testing.T) {
	server := esdbtest.Start(t)
	var logged bytes.Buffer
	s := open(t, server.URL(), esdbstore.Options{Entropy: rand.Reader, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	e, secret := events(t, 2), []byte(`{"password":"hunter2"}`)
	appended(t, s, "user-1", eventstore.NoStream, e[:1])
	blanks := strings.Repeat(" ", 32)
	for i, odd := range []struct {
		system map[string]string
		custom string
	}{
		{nil, ""},                               // nothing at all
		{map[string]string{"type": "shop"}, ""}, // no creation time, no metadata
		{map[string]string{"type": "shop", "created": "soon"}, `{"version":1}` + blanks[1:]},
		{map[string]string{"type": "shop", "created": "1"}, `{"version":0}` + blanks},
		{map[string]string{"type": "shop", "created": "1"}, `{"version":` + blanks},
		{map[string]string{"type": "shop", "created": "1"}, blanks},
	} {
		server.Write("shop-1", uint64(i), odd.system, secret, []byte(odd.custom))
	}
	server.Write("$shop", 7, map[string]string{"type": "shop"}, secret, e[0].Meta)
	appended(t, s, "user-1", 0, e[1:])
	server.Write("shop-1", 8, nil, secret, nil)

	log := wantLog(t, s, e...)
	for _, limit := range []int{1, 2} {
		page, err := s.ReadAll(t.Context(), log[0].Position, limit)
		if err != nil || len(page) != 1 || page[0].ID != e[1].ID {
			t.Errorf("pages of %d: got %+v, %v", limit, page, err)
		}
	}
	if head, err := s.Head(t.Context()); err != nil || head != log[1].Position {
		t.Errorf("head is %q, %v, want %q", head, err, log[1].Position)
	}
	if _, err := s.ReadStream(t.Context(), "shop-1", 0, 10); err == nil {
		t.Error("a stream of others was read as one of ours")
	}
	if text := logged.String(); !strings.Contains(text, "shop-1") || strings.Contains(text, "hunter2") {
		t.Errorf("logged: %s", text)
	}
}

func TestAnEventWithoutACreationTimeIsRead(t *testing.T) {
	server := esdbtest.Start(t)
	s := open(t, server.URL(), options(0))
	meta := `{"version":1,"recorded_at":"2026-03-01T00:00:00Z","actor":"policy:x"}`
	server.Write("user-1", 1, map[string]string{"type": "user.created"}, []byte(`{}`), []byte(meta+strings.Repeat("\n", 32)))
	got, err := s.ReadStream(t.Context(), "user-1", 0, 10)
	if err != nil || len(got) != 1 || string(got[0].Meta) != meta {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestAServerThatTellsNoPositionsIsRefused(t *testing.T) {
	server := esdbtest.Start(t)
	s := open(t, server.URL(), hasty())
	server.HidePositions()
	_, err := s.Append(t.Context(), "user-1", eventstore.NoStream, events(t, 2))
	if err == nil || errors.Is(err, eventstore.ErrUnavailable) || !strings.Contains(err.Error(), "KurrentDB") {
		t.Errorf("got %v, want a sentence about the version", err)
	}
}

func TestWhatCouldNotBeReadBackIsNotAppended(t *testing.T) {
	server := esdbtest.Start(t)
	s := open(t, server.URL(), hasty())
	for name, spoil := range map[string]func(*eventstore.Proposed){
		"another version":   func(e *eventstore.Proposed) { e.Version++ },
		"another client":    func(e *eventstore.Proposed) { e.Client = "" },
		"another time":      func(e *eventstore.Proposed) { e.RecordedAt = e.RecordedAt.Add(time.Microsecond) },
		"no metadata":       func(e *eventstore.Proposed) { e.Meta = nil },
		"a system's type":   func(e *eventstore.Proposed) { e.Type = "$user" },
		"no identification": func(e *eventstore.Proposed) { e.ID = "evt_" },
	} {
		e := events(t, 1)
		spoil(&e[0])
		if _, err := s.Append(t.Context(), "user-1", eventstore.NoStream, e); err == nil {
			t.Errorf("%s was appended", name)
		}
	}
	for _, stream := range []eventstore.Stream{"", "$user", "log-epoch"} {
		if _, err := s.Append(t.Context(), stream, eventstore.NoStream, events(t, 1)); err == nil {
			t.Errorf("an append to %q was taken", stream)
		}
	}
	wantLog(t, s)
}
