package projections

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/projections/readmodel"
)

// Clusters is the read model of clustering runs, of the clusters they found
// and of who is in them now.
type Clusters struct{ readmodel.Reader }

// Name of the read model.
func (Clusters) Name() string { return "clusters" }

// Wants says which events concern the read model.
func (Clusters) Wants(t string) bool {
	switch t {
	case "consent.granted", "consent.withdrawn", "consent_layer.retired", "segment.retired", "end_user.erased":
		return true
	}
	return strings.HasPrefix(t, "cluster.") || strings.HasPrefix(t, "clustering.") || strings.HasPrefix(t, "clustering_run.")
}

// Version of the read model's tables.
func (Clusters) Version() int { return 5 }

// Options of the read model. With a client goes what was shown of its runs.
func (Clusters) Options() projector.Options {
	return projector.Options{Indexes: clusterIndexes, AlsoForgets: []string{"public.clustering_progress"}}
}

// Schema of the read model. Members of a run that has not completed are there,
// but no cluster shows them. Who withdrew or was erased, and which layers were
// retired, is kept, so that a run under way at that time cannot show them.
func (Clusters) Schema() string {
	return `
CREATE TABLE runs (
	client         text COLLATE "C" NOT NULL,
	id             text COLLATE "C" NOT NULL,
	layer          text COLLATE "C" NOT NULL,
	segment        text COLLATE "C" NOT NULL, -- that it is kept to; empty: to none
	created_position           log_position NOT NULL, -- position of the request
	trait_paths    text[] NOT NULL,
	k              integer NOT NULL,
	min_size       integer NOT NULL DEFAULT 0,
	seed           bigint NOT NULL,
	status         text NOT NULL DEFAULT 'pending',
	attempt        integer NOT NULL DEFAULT 0,
	created_at     timestamptz NOT NULL,
	started_at     timestamptz,
	ended_at       timestamptz,
	users          integer,
	schema_version integer,
	silhouette     double precision,
	found          text, -- JSON of event.ClusterSummary
	error_code     text,
	error_details  text,
	judged         text, -- JSON of event.ClusteringJudged
	PRIMARY KEY (client, id)
);
CREATE INDEX runs_listed ON runs (client, segment, created_position);
CREATE INDEX runs_open ON runs (client, created_position) WHERE status IN ('pending', 'running');
CREATE INDEX runs_unjudged ON runs (client, created_position) WHERE status = 'completed' AND judged IS NULL;
CREATE TABLE clusters (
	client       text COLLATE "C" NOT NULL,
	id           text COLLATE "C" NOT NULL,
	layer        text COLLATE "C" NOT NULL,
	segment      text COLLATE "C" NOT NULL, -- of its runs
	created_position         log_position NOT NULL,
	run          text COLLATE "C" NOT NULL, -- the last that found it
	first_run    text COLLATE "C" NOT NULL,
	size         bigint NOT NULL,
	label        text NOT NULL,
	spread       double precision NOT NULL,
	stability    double precision, -- NULL: the run is not judged
	distinctions text NOT NULL, -- JSON of event.Distinction
	ancestors    text[] NOT NULL,
	descendants  text[] NOT NULL DEFAULT '{}',
	retired      boolean NOT NULL DEFAULT false,
	revision     bigint NOT NULL,
	formed_at    timestamptz NOT NULL,
	updated_at   timestamptz NOT NULL,
	PRIMARY KEY (client, id)
);
CREATE INDEX clusters_listed ON clusters (client, segment, created_position) WHERE NOT retired;
CREATE INDEX clusters_of_layer ON clusters (client, layer);
CREATE TABLE cluster_members (
	client  text COLLATE "C" NOT NULL,
	layer   text COLLATE "C" NOT NULL,
	segment text COLLATE "C" NOT NULL, -- of the run
	run     text COLLATE "C" NOT NULL,
	cluster text COLLATE "C" NOT NULL,
	user_id text COLLATE "C" NOT NULL,
	PRIMARY KEY (client, cluster, run, user_id)
);
CREATE INDEX cluster_members_of_run ON cluster_members (client, layer, run);
CREATE INDEX cluster_members_of_user ON cluster_members (client, user_id);
CREATE TABLE cluster_drift (
	client      text COLLATE "C" NOT NULL,
	cluster     text COLLATE "C" NOT NULL,
	run         text COLLATE "C" NOT NULL,
	created_position        log_position NOT NULL,
	at          timestamptz NOT NULL,
	severity    text NOT NULL DEFAULT 'none',
	causes      text NOT NULL DEFAULT '[]', -- JSON of event.DriftCause
	comparisons text NOT NULL,              -- JSON of event.ClusterComparison
	PRIMARY KEY (client, cluster, run)
);
CREATE TABLE cluster_flow (
	client       text COLLATE "C" NOT NULL,
	layer        text COLLATE "C" NOT NULL,
	run          text COLLATE "C" NOT NULL,
	from_cluster text COLLATE "C" NOT NULL, -- of the run before; empty: in none
	to_cluster   text COLLATE "C" NOT NULL, -- of this run; empty: in none
	users        bigint NOT NULL,
	PRIMARY KEY (client, run, from_cluster, to_cluster)
);
CREATE INDEX cluster_flow_of_layer ON cluster_flow (client, layer);
CREATE TABLE cluster_withdrawn (
	client  text COLLATE "C" NOT NULL,
	layer   text COLLATE "C" NOT NULL,
	user_id text COLLATE "C" NOT NULL,
	PRIMARY KEY (client, layer, user_id)
);
CREATE TABLE cluster_erased (
	client  text COLLATE "C" NOT NULL,
	user_id text COLLATE "C" NOT NULL,
	PRIMARY KEY (client, user_id)
);
CREATE TABLE cluster_layers_retired (
	client text COLLATE "C" NOT NULL,
	layer  text COLLATE "C" NOT NULL,
	PRIMARY KEY (client, layer)
);
CREATE TABLE cluster_segments_retired (
	client  text COLLATE "C" NOT NULL,
	segment text COLLATE "C" NOT NULL,
	PRIMARY KEY (client, segment)
);`
}

var clusterIndexes = []string{
	`CREATE INDEX IF NOT EXISTS runs_in ON runs (client, status, segment, created_position);`,
	`CREATE INDEX IF NOT EXISTS runs_of_layer ON runs (client, layer, segment, created_position);`,
	`CREATE INDEX IF NOT EXISTS clusters_listed_of_layer ON clusters (client, layer, segment, created_position) WHERE NOT retired;`,
}

const (
	insertRun = `
INSERT INTO runs (client, id, layer, created_position, trait_paths, k, seed, created_at, min_size, segment) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT DO NOTHING -- it stands in the log twice`
	// supersedeRuns gives up judging the runs before one.
	supersedeRuns = `
UPDATE runs SET judged = '{"verdict":"unknown","code":"superseded"}'
WHERE client = $1 AND layer = $2 AND segment = $4 AND id <> $3 AND status = 'completed' AND judged IS NULL`
	judgeRun     = `UPDATE runs SET judged = $3 WHERE client = $1 AND id = $2`
	setStability = `
UPDATE clusters c SET stability = n.stability FROM unnest($3::text[], $4::float8[]) AS n (id, stability)
WHERE c.client = $1 AND c.run = $2 AND c.id = n.id`
	startRun = `
UPDATE runs SET status = 'running', attempt = $3, started_at = $4 WHERE client = $1 AND id = $2`
	cancelRun   = `UPDATE runs SET status = 'cancelled', ended_at = $3 WHERE client = $1 AND id = $2`
	failRun     = `UPDATE runs SET status = 'failed', ended_at = $3, error_code = $4, error_details = $5 WHERE client = $1 AND id = $2`
	completeRun = `
UPDATE runs SET status = 'completed', ended_at = $3, users = $4, schema_version = $5, silhouette = $6, found = $7
WHERE client = $1 AND id = $2`

	// dropMembers forgets what other attempts have left of a run.
	dropMembers = `DELETE FROM cluster_members WHERE client = $1 AND run = $2 AND layer = $3`
	// countFlow counts who moved from where to where since the run before, whose
	// members are still there.
	countFlow = `
INSERT INTO cluster_flow (client, layer, run, from_cluster, to_cluster, users)
SELECT $1, $2, $3, coalesce(o.cluster, ''), coalesce(n.cluster, ''), count(*)
FROM (SELECT user_id, cluster FROM cluster_members WHERE client = $1 AND layer = $2 AND segment = $4 AND run <> $3) o
FULL JOIN (SELECT user_id, cluster FROM cluster_members WHERE client = $1 AND layer = $2 AND segment = $4 AND run = $3) n ON n.user_id = o.user_id
WHERE NOT EXISTS (SELECT FROM cluster_flow WHERE client = $1 AND run = $3) -- it stands in the log twice
GROUP BY 4, 5`
	// dropOlder forgets all runs of a scope but one.
	dropOlder = `DELETE FROM cluster_members WHERE client = $1 AND layer = $2 AND segment = $4 AND run <> $3`

	// insertMembers takes only what the attempt under way has found, and nobody
	// who is not to be shown.
	insertMembers = `
INSERT INTO cluster_members (client, layer, run, cluster, user_id, segment)
SELECT $1, $2, $3, $4, u.id, $7 FROM unnest($6::text[]) AS u (id)
WHERE EXISTS (SELECT FROM runs r WHERE r.client = $1 AND r.id = $3 AND r.status = 'running' AND r.attempt = $5)
	AND NOT EXISTS (SELECT FROM cluster_layers_retired l WHERE l.client = $1 AND l.layer = $2)
	AND NOT EXISTS (SELECT FROM cluster_withdrawn w WHERE w.client = $1 AND w.layer = $2 AND w.user_id = u.id)
	AND NOT EXISTS (SELECT FROM cluster_erased e WHERE e.client = $1 AND e.user_id = u.id)
ON CONFLICT DO NOTHING`

	upsertCluster = `
INSERT INTO clusters (client, id, layer, created_position, run, first_run, size, label, spread, distinctions, ancestors, revision, formed_at, updated_at, segment)
SELECT $1, $2, $3, $4, $5, $6, (SELECT count(*) FROM cluster_members WHERE client = $1 AND cluster = $2 AND run = $5),
	$7, $8, $9, $10, $11, $12, $12, coalesce((SELECT r.segment FROM runs r WHERE r.client = $1 AND r.id = $5), '')
WHERE NOT EXISTS (SELECT FROM cluster_layers_retired l WHERE l.client = $1 AND l.layer = $3)
ON CONFLICT (client, id) DO UPDATE SET run = excluded.run, size = excluded.size, label = excluded.label,
	spread = excluded.spread, stability = NULL, distinctions = excluded.distinctions, ancestors = excluded.ancestors,
	revision = excluded.revision, updated_at = excluded.updated_at`
	retireCluster = `
UPDATE clusters SET retired = true, descendants = $3, revision = $4, updated_at = $5 WHERE client = $1 AND id = $2`

	insertDrift = `
INSERT INTO cluster_drift (client, cluster, run, created_position, at, comparisons) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (client, cluster, run) DO NOTHING -- it stands in the log twice`
	tellDrift = `UPDATE cluster_drift SET severity = $4, causes = $5 WHERE client = $1 AND cluster = $2 AND run = $3`

	// hideMembers takes users out of every cluster, of a layer or of all.
	hideMembers = `
WITH gone AS (
	DELETE FROM cluster_members m USING unnest($1::text[], $2::text[], $3::text[]) AS n (client, layer, user_id)
	WHERE m.client = n.client AND m.user_id = n.user_id AND (n.layer = '' OR m.layer = n.layer)
	RETURNING m.client, m.cluster, m.run
), counted AS (SELECT client, cluster, run, count(*) AS n FROM gone GROUP BY client, cluster, run)
UPDATE clusters c SET size = c.size - counted.n FROM counted
WHERE c.client = counted.client AND c.id = counted.cluster AND c.run = counted.run`
	noteWithdrawn = `
INSERT INTO cluster_withdrawn (client, layer, user_id) SELECT * FROM unnest($1::text[], $2::text[], $3::text[]) ON CONFLICT DO NOTHING`
	noteGranted = `
DELETE FROM cluster_withdrawn w USING unnest($1::text[], $2::text[], $3::text[]) AS n (client, layer, user_id)
WHERE w.client = n.client AND w.layer = n.layer AND w.user_id = n.user_id`
	noteGone    = `INSERT INTO cluster_erased (client, user_id) VALUES ($1, $2) ON CONFLICT DO NOTHING`
	noteLayer   = `INSERT INTO cluster_layers_retired (client, layer) VALUES ($1, $2) ON CONFLICT DO NOTHING`
	noteSegment = `INSERT INTO cluster_segments_retired (client, segment) VALUES ($1, $2) ON CONFLICT DO NOTHING`
	dropDrift   = `
DELETE FROM cluster_drift d USING clusters c
WHERE c.client = $1 AND c.layer = $2 AND d.client = c.client AND d.cluster = c.id`
	dropFlow     = `DELETE FROM cluster_flow WHERE client = $1 AND layer = $2`
	dropClusters = `DELETE FROM clusters WHERE client = $1 AND layer = $2`
	dropLayer    = `DELETE FROM cluster_members WHERE client = $1 AND layer = $2`

	membersOfRun   = `SELECT FROM cluster_members WHERE client = $1 AND layer = $2 AND run = $3`
	membersOfLayer = `SELECT FROM cluster_members WHERE client = $1 AND layer = $2`
)

// memberRows are the members that an event is of.
type memberRows struct {
	written int
	deleted string // a query that finds them, by the client and what follows
	by      []any
}

// membersOf are the members that an event writes or deletes, where these may be many.
func membersOf(e event.Event) (m memberRows, many bool) {
	switch e := e.(type) {
	case event.ClusteringAssigned:
		return memberRows{written: len(e.Users)}, true
	case event.ClusteringStarted:
		return memberRows{deleted: membersOfRun, by: []any{string(e.Layer), string(e.Run)}}, true
	case event.ClusteringCancelled:
		return memberRows{deleted: membersOfRun, by: []any{string(e.Layer), string(e.Run)}}, true
	case event.ClusteringFailed:
		return memberRows{deleted: membersOfRun, by: []any{string(e.Layer), string(e.Run)}}, true
	case event.ClusteringCompleted:
		return memberRows{deleted: membersOfLayer, by: []any{string(e.Layer)}}, true
	case event.ConsentLayerRetired:
		return memberRows{deleted: membersOfLayer, by: []any{string(e.Layer)}}, true
	}
	return memberRows{}, false
}

// ApplyTogether implements [projector.PerClient]: of clients without clustering, and whose
// layers stay.
func (m Clusters) ApplyTogether(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) (rest []eventstore.Recorded, err error) {
	together, rest := readmodel.Apart(batch, func(e event.Event) bool {
		_, many := membersOf(e)
		return many
	})
	return rest, m.Apply(ctx, tx, together)
}

// ApplyClient implements [projector.PerClient]: the members of a large layer keep nobody waiting.
func (m Clusters) ApplyClient(ctx context.Context, tx pgx.Tx, _ *eventstore.Log, client id.Client, batch []eventstore.Recorded, spend projector.Spend) error {
	for _, r := range batch {
		rows, _ := membersOf(r.Event)
		err := spend(rows.written * readmodel.StepsToWrite)
		if err == nil && rows.deleted != "" {
			err = readmodel.SpendOnRows(ctx, tx, spend, readmodel.StepsToDelete, rows.deleted, append([]any{string(client)}, rows.by...)...)
		}
		if err != nil {
			return err
		}
	}
	return m.Apply(ctx, tx, batch)
}

// Apply changes the model by a batch of events. Consents come in great numbers
// and go together; all else waits for those before it.
func (Clusters) Apply(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) error {
	said := map[string]consentRow{} // the last of each user and layer
	for _, r := range batch {
		row := consentRow{client: r.Client}
		switch e := r.Event.(type) {
		case event.ConsentGranted:
			row.layer, row.user, row.granted = e.Layer, e.User, true
		case event.ConsentWithdrawn:
			row.layer, row.user = e.Layer, e.User
		default:
			var b pgx.Batch
			if err := applyCluster(&b, r); err != nil {
				return err
			}
			if b.Len() == 0 {
				continue
			}
			if err := hide(ctx, tx, said); err != nil {
				return err
			}
			clear(said)
			if err := readmodel.Send(ctx, tx, "clusters", &b); err != nil {
				return err
			}
			continue
		}
		key := string(r.Client) + "/" + string(row.layer) + "/" + string(row.user)
		// Who withdrew and granted again is in no cluster until the next run.
		row.hidden = !row.granted || said[key].hidden
		said[key] = row
	}
	return hide(ctx, tx, said)
}

// hide takes those out who withdrew.
func hide(ctx context.Context, tx pgx.Tx, said map[string]consentRow) error {
	var hidden, withdrawn, granted []consentRow
	for _, row := range readmodel.SortedValues(said) {
		if row.hidden {
			hidden = append(hidden, row)
		}
		if row.granted {
			granted = append(granted, row)
		} else {
			withdrawn = append(withdrawn, row)
		}
	}
	for _, step := range []struct {
		sql  string
		rows []consentRow
	}{{noteWithdrawn, withdrawn}, {noteGranted, granted}, {hideMembers, hidden}} {
		if len(step.rows) == 0 {
			continue
		}
		if err := readmodel.Do(ctx, tx, "hide members", step.sql,
			readmodel.Column(step.rows, func(r consentRow) string { return string(r.client) }),
			readmodel.Column(step.rows, func(r consentRow) string { return string(r.layer) }),
			readmodel.Column(step.rows, func(r consentRow) string { return string(r.user) }),
		); err != nil {
			return err
		}
	}
	return nil
}

func applyCluster(b *pgx.Batch, r eventstore.Recorded) error {
	client := string(r.Client)
	switch e := r.Event.(type) {
	case event.ClusteringAssigned:
		b.Queue(insertMembers, client, string(e.Layer), string(e.Run), string(e.Cluster), e.Attempt, e.Users, string(e.Segment))
	case event.ClusterFormed:
		return applyState(b, r, e.ClusterState, e.Ancestors)
	case event.ClusterKept:
		comparisons, err := json.Marshal(e.Comparisons)
		if err != nil {
			return fmt.Errorf("encode the comparisons of %s: %w", e.Cluster, err)
		}
		if err := applyState(b, r, e.ClusterState, e.Ancestors); err != nil {
			return err
		}
		b.Queue(insertDrift, client, string(e.Cluster), string(e.Run), string(r.Position), r.RecordedAt, string(comparisons))
	case event.ClusterRetired:
		b.Queue(retireCluster, client, string(e.Cluster), readmodel.Texts(e.Descendants), int64(r.Revision), r.RecordedAt)
	case event.ClusterDriftDetected:
		causes, err := json.Marshal(e.Causes)
		if err != nil {
			return fmt.Errorf("encode the causes of %s: %w", e.Cluster, err)
		}
		b.Queue(tellDrift, client, string(e.Cluster), string(e.Run), e.Severity, string(causes))
	case event.EndUserErased:
		b.Queue(noteGone, client, string(e.User))
		b.Queue(hideMembers, []string{client}, []string{""}, []string{string(e.User)})
	case event.ConsentLayerRetired:
		b.Queue(noteLayer, client, string(e.Layer))
		for _, sql := range []string{dropDrift, dropFlow, dropClusters, dropLayer} {
			b.Queue(sql, client, string(e.Layer))
		}
	case event.SegmentRetired:
		b.Queue(noteSegment, client, string(e.Segment))
	default:
		return applyRun(b, r)
	}
	return nil
}

func applyRun(b *pgx.Batch, r eventstore.Recorded) error {
	client := string(r.Client)
	switch e := r.Event.(type) {
	case event.ClusteringRequested:
		b.Queue(insertRun, client, string(e.Run), string(e.Layer), string(r.Position), e.TraitPaths, e.K, e.Seed, r.RecordedAt, e.MinSize, string(e.Segment))
		b.Queue(supersedeRuns, client, string(e.Layer), string(e.Run), string(e.Segment))
	case event.ClusteringStarted:
		b.Queue(startRun, client, string(e.Run), e.Attempt, r.RecordedAt)
		b.Queue(dropMembers, client, string(e.Run), string(e.Layer))
	case event.ClusteringCancelled:
		b.Queue(cancelRun, client, string(e.Run), r.RecordedAt)
		b.Queue(dropMembers, client, string(e.Run), string(e.Layer))
	case event.ClusteringFailed:
		b.Queue(failRun, client, string(e.Run), r.RecordedAt, e.Code, e.Details)
		b.Queue(dropMembers, client, string(e.Run), string(e.Layer))
	case event.ClusteringCompleted:
		found, err := json.Marshal(e.Clusters)
		if err != nil {
			return fmt.Errorf("encode the clusters of %s: %w", e.Run, err)
		}
		b.Queue(completeRun, client, string(e.Run), r.RecordedAt, e.Users, e.SchemaVersion, e.Silhouette, string(found))
		b.Queue(countFlow, client, string(e.Layer), string(e.Run), string(e.Segment))
		b.Queue(dropOlder, client, string(e.Layer), string(e.Run), string(e.Segment))
	case event.ClusteringJudged:
		judged, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("encode the verdict on %s: %w", e.Run, err)
		}
		b.Queue(judgeRun, client, string(e.Run), string(judged))
		b.Queue(setStability, client, string(e.Run), readmodel.Column(e.Stability, func(s event.ClusterStability) string { return string(s.Cluster) }),
			readmodel.Column(e.Stability, func(s event.ClusterStability) float64 { return s.Jaccard }))
	}
	return nil
}

func applyState(b *pgx.Batch, r eventstore.Recorded, s event.ClusterState, ancestors []id.Cluster) error {
	distinctions, err := json.Marshal(s.Distinctions)
	if err != nil {
		return fmt.Errorf("encode the distinctions of %s: %w", s.Cluster, err)
	}
	b.Queue(upsertCluster, string(r.Client), string(s.Cluster), string(s.Layer), string(r.Position), string(s.Run),
		string(s.First.Run), s.Label, s.Spread, string(distinctions), readmodel.Texts(ancestors), int64(r.Revision), r.RecordedAt)
	return nil
}
