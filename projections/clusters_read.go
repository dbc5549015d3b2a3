package projections

import (
	"context"
	"time"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/projections/readmodel"
)

// Run is a clustering run.
type Run struct {
	ID              id.Run
	Layer           id.ConsentLayer
	Segment         id.Segment // that it is kept to; "": to none
	TraitPaths      []string
	K               int // 0: chosen by the run
	MinSize         int // of a cluster; 0: chosen by the run
	Seed            int64
	Status          string // pending, running, completed, failed or cancelled
	Attempt         int
	CreatedAt       time.Time
	StartedAt       *time.Time
	EndedAt         *time.Time
	Users           *int
	SchemaVersion   *int
	Silhouette      *float64
	Found           []event.ClusterSummary // of a completed run
	ErrorCode       string
	ErrorDetails    string
	Judged          *event.ClusteringJudged // nil: not yet, or not completed
	Phase           string                  // of a running one
	Share           float64
	ETASeconds      *int
	CreatedPosition eventstore.Position // of the request: its input is what stands before
}

const runColumns = `
SELECT r.id, r.layer, r.trait_paths, r.k, r.seed, r.status, r.attempt, r.created_at, r.started_at, r.ended_at, r.users,
	r.schema_version, r.silhouette, r.found, r.error_code, r.error_details, p.phase, coalesce(p.share, 0) AS share, p.eta_seconds, r.created_position,
	r.min_size, r.judged, r.segment
FROM runs r LEFT JOIN clustering_progress p ON p.client = r.client AND p.run = r.id AND r.status = 'running'
WHERE r.client = $1`

const (
	runsAfter = runColumns + ` AND r.created_position > $2`
	runsIn    = ` AND r.status = $%d`
	runsOf    = ` AND r.layer = $%d`
	runsKept  = ` AND r.segment = $%d`
	runsPage  = ` ORDER BY r.created_position LIMIT $%d`
	getRun    = runColumns + ` AND r.id = $2`
)

func scanRun(r *Run) []any {
	return []any{
		readmodel.Text(&r.ID), readmodel.Text(&r.Layer), &r.TraitPaths, &r.K, &r.Seed, readmodel.Text(&r.Status), &r.Attempt, &r.CreatedAt, &r.StartedAt,
		&r.EndedAt, &r.Users, &r.SchemaVersion, &r.Silhouette, readmodel.Document(&r.Found), readmodel.Text(&r.ErrorCode), readmodel.Text(&r.ErrorDetails),
		readmodel.Text(&r.Phase), &r.Share, &r.ETASeconds, readmodel.Text(&r.CreatedPosition),
		&r.MinSize, readmodel.Document(&r.Judged), readmodel.Text(&r.Segment),
	}
}

// Scope is what the run divides.
func (r Run) Scope() event.RunScope { return event.RunScope{Layer: r.Layer, Segment: r.Segment} }

// RunQuery selects runs. An empty field selects all, but for the Segment: then they are
// kept to none.
type RunQuery struct {
	Status  string
	Layer   id.ConsentLayer
	Segment id.Segment
	Page    readmodel.Page
}

// Runs returns the clustering runs of a client in order of their request.
// Faults: building, overloaded, quarantined, stale.
func (m Clusters) Runs(ctx context.Context, client id.Client, eventual bool, q RunQuery) ([]Run, error) {
	w := readmodel.Where{SQL: runsAfter, Args: []any{string(q.Page.After)}}
	w.AndText(runsIn, q.Status)
	w.AndText(runsOf, string(q.Layer))
	w.And(runsKept, string(q.Segment))
	w.And(runsPage, q.Page.Limit)
	return m.runs(ctx, client, eventual, w.SQL, w.Args...)
}

// Run returns one run, or fails with a fault of kind Missing.
// Faults: building, clustering_run_unknown, overloaded, quarantined, stale.
func (m Clusters) Run(ctx context.Context, client id.Client, eventual bool, run id.Run) (Run, error) {
	found, err := m.runs(ctx, client, eventual, getRun, string(run))
	return readmodel.Only(found, err, fault.UnknownClusteringRun())
}

func (m Clusters) runs(ctx context.Context, client id.Client, eventual bool, sql string, args ...any) ([]Run, error) {
	return readmodel.Query(ctx, m.Reader, m, client, eventual, sql, args, scanRun)
}

// Cluster is a group of like users, which keeps its id from run to run.
type Cluster struct {
	ID              id.Cluster
	Layer           id.ConsentLayer
	Segment         id.Segment // that its runs are kept to; "": to none
	Run             id.Run     // the last that found it
	FirstRun        id.Run
	Size            int64 // members now
	Label           string
	Spread          float64
	Stability       *float64 // nil: its run is not judged
	Silhouette      float64  // of the last run that found it
	Distinctions    []event.Distinction
	Ancestors       []id.Cluster
	Descendants     []id.Cluster
	Retired         bool
	Revision        eventstore.Revision
	FormedAt        time.Time
	UpdatedAt       time.Time
	CreatedPosition eventstore.Position
}

const clusterColumns = `
SELECT c.id, c.layer, c.run, c.first_run, c.size, c.label, c.spread, coalesce(r.silhouette, 0) AS silhouette, c.distinctions,
	c.ancestors, c.descendants, c.retired, c.revision, c.formed_at, c.updated_at, c.created_position, c.stability, c.segment
FROM clusters c LEFT JOIN runs r ON r.client = c.client AND r.id = c.run
WHERE c.client = $1`

const (
	clustersAfter  = clusterColumns + ` AND NOT c.retired AND c.created_position > $2`
	clustersIn     = ` AND c.layer = $%d`
	clustersKept   = ` AND c.segment = $%d`
	clustersPage   = ` ORDER BY c.created_position LIMIT $%d`
	getCluster     = clusterColumns + ` AND c.id = $2`
	clustersOfUser = clusterColumns + `
	AND NOT c.retired AND EXISTS (SELECT FROM cluster_members m
		WHERE m.client = $1 AND m.user_id = $2 AND m.cluster = c.id AND m.run = c.run) ORDER BY c.created_position`
)

func scanCluster(c *Cluster) []any {
	return []any{
		readmodel.Text(&c.ID), readmodel.Text(&c.Layer), readmodel.Text(&c.Run), readmodel.Text(&c.FirstRun), &c.Size, readmodel.Text(&c.Label), &c.Spread, &c.Silhouette,
		readmodel.Document(&c.Distinctions), &c.Ancestors, &c.Descendants, &c.Retired, &c.Revision, &c.FormedAt, &c.UpdatedAt, readmodel.Text(&c.CreatedPosition),
		&c.Stability, readmodel.Text(&c.Segment),
	}
}

// List returns the clusters that the last runs found, of a layer or of all, in
// order of their forming; of runs that were kept to a segment, or to none.
// Faults: building, overloaded, quarantined, stale.
func (m Clusters) List(ctx context.Context, client id.Client, eventual bool, of event.RunScope, page readmodel.Page) ([]Cluster, error) {
	w := readmodel.Where{SQL: clustersAfter, Args: []any{string(page.After)}}
	w.AndText(clustersIn, string(of.Layer))
	w.And(clustersKept, string(of.Segment))
	w.And(clustersPage, page.Limit)
	return m.clusters(ctx, client, eventual, w.SQL, w.Args...)
}

// ListAll is List of all layers, of runs that were kept to a segment or to none.
// Faults: building, overloaded, quarantined, stale.
func (m Clusters) ListAll(ctx context.Context, client id.Client, eventual bool, page readmodel.Page) ([]Cluster, error) {
	w := readmodel.Where{SQL: clustersAfter, Args: []any{string(page.After)}}
	w.And(clustersPage, page.Limit)
	return m.clusters(ctx, client, eventual, w.SQL, w.Args...)
}

// OfUser returns the clusters that a user is in now, also those that are kept to segments.
// Faults: building, overloaded, quarantined, stale.
func (m Clusters) OfUser(ctx context.Context, client id.Client, eventual bool, user id.User) ([]Cluster, error) {
	return m.clusters(ctx, client, eventual, clustersOfUser, string(user))
}

// Get returns one cluster, also a retired one, or fails with a fault of kind
// Missing.
// Faults: building, cluster_unknown, overloaded, quarantined, stale.
func (m Clusters) Get(ctx context.Context, client id.Client, eventual bool, cluster id.Cluster) (Cluster, error) {
	found, err := m.clusters(ctx, client, eventual, getCluster, string(cluster))
	return readmodel.Only(found, err, fault.UnknownCluster())
}

func (m Clusters) clusters(ctx context.Context, client id.Client, eventual bool, sql string, args ...any) ([]Cluster, error) {
	return readmodel.Query(ctx, m.Reader, m, client, eventual, sql, args, scanCluster)
}

// ClusterMember is a user in a cluster.
type ClusterMember struct {
	User       id.User
	ExternalID string
}

// The members are those of the cluster's last run who have neither withdrawn
// nor been erased: both take them out of the table. The external id comes from
// the users model, see listWithExternalIDs; its key is gone as soon as a user is erased.
// The run is one value, so that members come in the order of the index, and no more than a
// page of them: joined with its cluster, all 25,000 of one were looked up and sorted.
const clusterMembers = `
SELECT m.user_id, u.external, u.external_event, k.id AS key, k.client_key, k.wrapped
FROM cluster_members m
LEFT JOIN users u ON u.client = m.client AND u.id = m.user_id
JOIN subject_keys k ON k.client = m.client AND k.subject = m.user_id
WHERE m.client = $1 AND m.cluster = $2 AND m.run = (SELECT c.run FROM clusters c WHERE c.client = $1 AND c.id = $2 AND NOT c.retired)
	AND m.user_id > $3 AND u.erased IS NOT true ORDER BY m.user_id LIMIT $4`

// Members returns who is in a cluster now, in order of their ids; a page
// begins after the user that it names.
// Faults: building, overloaded, quarantined, stale.
func (m Clusters) Members(ctx context.Context, client id.Client, eventual bool, cluster id.Cluster, page readmodel.Page) ([]ClusterMember, error) {
	return listWithExternalIDs(ctx, m.Reader, m, client, eventual, page, clusterMembers, []any{string(cluster)},
		func(u *ClusterMember) []any { return []any{readmodel.Text(&u.User)} },
		func(u *ClusterMember) (id.User, *string, eventstore.Position) {
			return u.User, &u.ExternalID, eventstore.Position(u.User)
		})
}

// ClusterDrift is how a cluster compares with what it was, as a run found it.
type ClusterDrift struct {
	Run             id.Run
	At              time.Time
	Severity        string // none, moderate or major, of what was told
	Causes          []event.DriftCause
	Comparisons     []event.ClusterComparison
	CreatedPosition eventstore.Position
}

const clusterDrift = `
SELECT d.run, d.at, d.severity, d.causes, d.comparisons, d.created_position FROM cluster_drift d
WHERE d.client = $1 AND d.cluster = $2 AND d.created_position > $3 ORDER BY d.created_position LIMIT $4`

// Drift returns what became of a cluster from run to run, the oldest first.
// Faults: building, overloaded, quarantined, stale.
func (m Clusters) Drift(ctx context.Context, client id.Client, eventual bool, cluster id.Cluster, page readmodel.Page) ([]ClusterDrift, error) {
	return readmodel.Query(ctx, m.Reader, m, client, eventual, clusterDrift, []any{string(cluster), string(page.After), page.Limit},
		func(d *ClusterDrift) []any {
			return []any{readmodel.Text(&d.Run), &d.At, readmodel.Text(&d.Severity), readmodel.Document(&d.Causes), readmodel.Document(&d.Comparisons), readmodel.Text(&d.CreatedPosition)}
		})
}
