package app

import (
	"context"
	"time"

	"kindred/domain/id"
	"kindred/httpapi/auth"
	"kindred/projections"
)

// revocationSource tells what was revoked. A revocation is noted before it is
// acknowledged, so what is read now holds all there was until now.
type revocationSource struct {
	noted projections.Revocations
	model projections.Revocations // with progress to wait for, on connections that may be waited for
}

// Since fulfils auth.RevocationSource.
func (s revocationSource) Since(ctx context.Context, within time.Duration, most int) ([]string, time.Time, error) {
	asked := time.Now()
	revoked, err := s.noted.Since(ctx, within, most)
	return revoked, asked, err
}

// Revoked fulfils auth.RevocationSource.
func (s revocationSource) Revoked(ctx context.Context, client id.Client, subjects ...string) (bool, error) {
	return s.model.Revoked(ctx, client, subjects...)
}

var _ auth.RevocationSource = revocationSource{}
