package main

import (
	"context"
	"time"

	"kindred/httpapi/auth"
	"kindred/projections"
)

// revocationSource tells what was revoked. A revocation stands in the model
// before it is acknowledged, so what is read now holds all there was until now.
type revocationSource struct{ model projections.Revocations }

// Since fulfils auth.RevocationSource.
func (s revocationSource) Since(ctx context.Context, within time.Duration) ([]string, time.Time, error) {
	asked := time.Now()
	found, err := s.model.Since(ctx, within, auth.MaxRevocations)
	if err != nil {
		return nil, time.Time{}, err
	}
	revoked := make([]string, len(found))
	for i, r := range found {
		revoked[i] = r.Subject
	}
	return revoked, asked, nil
}
