package projections

import (
	"context"
	"time"

	"kindred/domain/id"
	"kindred/projections/readmodel"
)

// What needs attention, each from the model that keeps it. These queries wait for no model,
// since they are asked most when one is behind.

const driftingClusters = `
SELECT c.id, c.layer, d.run, d.severity, d.at FROM clusters c
JOIN cluster_drift d ON d.client = c.client AND d.cluster = c.id AND d.run = c.run
WHERE c.client = $1 AND NOT c.retired AND d.severity IN ('moderate', 'major')
	AND NOT EXISTS (SELECT FROM cluster_segments_retired s WHERE s.client = $1 AND s.segment = c.segment)
ORDER BY d.severity = 'major' DESC, d.at DESC, c.id LIMIT $2`

// DriftingCluster is a cluster of which the last run told that it drifted.
type DriftingCluster struct {
	Cluster  id.Cluster
	Layer    id.ConsentLayer
	Run      id.Run
	Severity string // moderate or major
	At       time.Time
}

// Drifting returns clusters that the last run of their layer found to have drifted,
// the worst first.
// Faults: building, overloaded, quarantined, stale.
func (m Clusters) Drifting(ctx context.Context, client id.Client, limit int) ([]DriftingCluster, error) {
	return readmodel.Query(ctx, m.Reader, m, client, true, driftingClusters, []any{limit}, func(d *DriftingCluster) []any {
		return []any{readmodel.Text(&d.Cluster), readmodel.Text(&d.Layer), readmodel.Text(&d.Run), readmodel.Text(&d.Severity), &d.At}
	})
}

const lastFailedRuns = runColumns + ` AND r.status = 'failed'
	AND NOT EXISTS (SELECT FROM runs n WHERE n.client = $1 AND n.layer = r.layer AND n.segment = r.segment AND n.created_position > r.created_position AND n.status <> 'cancelled')
	AND NOT EXISTS (SELECT FROM cluster_layers_retired l WHERE l.client = $1 AND l.layer = r.layer)
	AND NOT EXISTS (SELECT FROM cluster_segments_retired s WHERE s.client = $1 AND s.segment = r.segment)
ORDER BY r.created_position DESC LIMIT $2`

// LastFailed returns the failed runs that no other of their layer has followed, the
// newest first.
// Faults: building, overloaded, quarantined, stale.
func (m Clusters) LastFailed(ctx context.Context, client id.Client, limit int) ([]Run, error) {
	return m.runs(ctx, client, true, lastFailedRuns, limit)
}

const nearlySpentCampaigns = campaignColumns + `
WHERE c.client = $1 AND c.status = 'running' AND c.spent_minor >= $2 * (c.terms::jsonb ->> 'budget_minor')::numeric
ORDER BY c.created_position LIMIT $3`

// NearlySpent returns the running campaigns that have spent a share of their budget,
// or more, in order of creation.
// Faults: building, overloaded, quarantined, stale.
func (m Campaigns) NearlySpent(ctx context.Context, client id.Client, share float64, limit int) ([]Campaign, error) {
	return m.campaigns(ctx, client, true, nearlySpentCampaigns, share, limit)
}

const expiringKeys = `
SELECT a.id, a.expires_at FROM api_keys a
WHERE a.client = $1 AND NOT a.revoked AND a.expires_at > $2 AND a.expires_at <= $3 ORDER BY a.expires_at, a.id LIMIT $4`

// Expiring returns the keys that expire between two times, the first of them first.
// Faults: building, overloaded, quarantined, stale.
func (m APIKeys) Expiring(ctx context.Context, client id.Client, from, to time.Time, limit int) ([]APIKey, error) {
	return readmodel.Query(ctx, m.Reader, m, client, true, expiringKeys, []any{from, to, limit}, func(k *APIKey) []any {
		return []any{readmodel.Text(&k.ID), &k.ExpiresAt}
	})
}
