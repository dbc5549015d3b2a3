package main

import (
	"context"
	"strings"
	"time"

	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/httpapi/auth"
	"kindred/projections"
)

// revocationSource tells what was revoked, and up to when that is everything:
// once the model has reached a head of the log that was read at some moment,
// it holds all that was acknowledged before that moment.
type revocationSource struct {
	model projections.Revocations
	store eventstore.Store

	head  eventstore.Position // of the log, when it was last asked
	asked time.Time           // just before; zero: not asked yet
	upTo  time.Time
}

// Since fulfils auth.RevocationSource. It serves one goroutine.
func (s *revocationSource) Since(ctx context.Context, after time.Time) ([]auth.Revocation, time.Time, error) {
	if s.asked.IsZero() {
		if err := s.askHead(ctx); err != nil {
			return nil, time.Time{}, err
		}
	}
	found, reached, err := s.model.Since(ctx, after)
	if err != nil {
		return nil, time.Time{}, err
	}
	if reached >= s.head {
		s.upTo = s.asked
		if err := s.askHead(ctx); err != nil { // for the next poll
			return nil, time.Time{}, err
		}
	}
	revoked := make([]auth.Revocation, len(found))
	for i, r := range found {
		revoked[i] = auth.Revocation{At: r.At}
		if strings.HasPrefix(r.Subject, "key_") {
			revoked[i].Key = id.Key(r.Subject)
		} else {
			revoked[i].Member = id.Member(r.Subject)
		}
	}
	return revoked, s.upTo, nil
}

func (s *revocationSource) askHead(ctx context.Context) error {
	asked := time.Now()
	head, err := s.store.Head(ctx)
	if err != nil {
		return err
	}
	s.head, s.asked = head, asked
	return nil
}
