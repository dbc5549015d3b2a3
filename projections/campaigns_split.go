package projections

import (
	"context"

	"kindred/domain/id"
	"kindred/projections/readmodel"
)

// ClusterShare is what the members of a cluster have made of a campaign.
type ClusterShare struct {
	Cluster     id.Cluster
	Layer       id.ConsentLayer
	Label       string
	Size        int64 // members now
	Reach       int64 // members who have seen it
	Impressions int64
	Engaged     int64
}

// EngagementRate is that of [Totals].
func (s ClusterShare) EngagementRate() float64 {
	return Totals{Impressions: s.Impressions, Engaged: s.Engaged}.EngagementRate()
}

// maxShares bounds the clusters that a campaign is divided by.
// limit: client | clusters that a campaign's figures are divided by | {maxShares} | the rest is left out
const maxShares = 200

const campaignShares = `
SELECT c.id, c.layer, c.label, c.size, coalesce(s.reach, 0) AS reach, coalesce(s.impressions, 0) AS impressions, coalesce(s.engaged, 0) AS engaged
FROM clusters c LEFT JOIN (
	SELECT m.cluster, m.run, count(*) AS reach, sum(u.impressions)::bigint AS impressions, sum(u.engaged)::bigint AS engaged
	FROM campaign_users u JOIN cluster_members m ON m.client = u.client AND m.user_id = u.user_id
	WHERE u.client = $1 AND u.campaign = $2 GROUP BY m.cluster, m.run) s ON s.cluster = c.id AND s.run = c.run
WHERE c.client = $1 AND NOT c.retired AND (s.reach > 0 AND c.segment = '' OR c.id = ANY($3))
ORDER BY coalesce(s.impressions, 0) DESC, c.id LIMIT $4`

// Shares divides a campaign by the clusters that its viewers are in now: those
// with the most impressions first, those it is aimed at also without any. Who
// is in clusters of several layers counts in each, who is in none counts
// nowhere; clusters that are kept to a segment count where it is aimed at them.
// Faults: building, overloaded, quarantined, stale.
func (m Campaigns) Shares(ctx context.Context, client id.Client, eventual bool, c Campaign) ([]ClusterShare, error) {
	// The campaigns have been waited for where c was read: the clusters are left.
	return readmodel.Query(ctx, m.Reader, Clusters{}, client, eventual, campaignShares,
		[]any{string(c.ID), readmodel.Texts(c.Clusters), maxShares}, func(s *ClusterShare) []any {
			return []any{readmodel.Text(&s.Cluster), readmodel.Text(&s.Layer), readmodel.Text(&s.Label), &s.Size, &s.Reach, &s.Impressions, &s.Engaged}
		})
}
