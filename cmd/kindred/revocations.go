package main

import (
	"context"
	"strings"
	"time"

	"kindred/domain/id"
	"kindred/httpapi/auth"
	"kindred/projections"
)

// revocationSource tells what was revoked. A revocation stands in the model
// before it is acknowledged, so what is read now holds all there was until now.
type revocationSource struct{ model projections.Revocations }

// Since fulfils auth.RevocationSource.
func (s revocationSource) Since(ctx context.Context, within time.Duration) ([]auth.Revocation, time.Time, error) {
	asked := time.Now()
	found, err := s.model.Since(ctx, within, auth.MaxRevocations)
	if err != nil {
		return nil, time.Time{}, err
	}
	revoked := make([]auth.Revocation, len(found))
	for i, r := range found {
		if strings.HasPrefix(r.Subject, "key_") {
			revoked[i].Key = id.Key(r.Subject)
		} else {
			revoked[i].Member = id.Member(r.Subject)
		}
	}
	return revoked, asked, nil
}
