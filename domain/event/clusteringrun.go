package event

import "kindred/domain/id"

// RunScope is what clustering runs divide, and are compared within: the users who grant a
// layer, or the members of a segment of it.
type RunScope struct {
	Layer   id.ConsentLayer
	Segment id.Segment // "": the whole layer
}

type (
	// ClusteringRequested asks for a run. Its input is the log before this
	// event: the users who had granted the layer then, as they were then.
	ClusteringRequested struct {
		fact
		Run        id.Run          `json:"clustering_run_id"`
		Layer      id.ConsentLayer `json:"consent_layer_id"`
		TraitPaths []string        `json:"trait_paths"` // what the layer permitted
		K          int             `json:"k,omitempty"` // 0: chosen by the run
		Seed       int64           `json:"seed"`
		MinSize    int             `json:"min_size,omitempty"` // users of a cluster; 0: chosen by the run
		// Segment is what the run is kept to; "": to the whole layer.
		Segment id.Segment `json:"segment_id,omitempty"`
	}
	// ClusteringStarted: a process takes the run. What it finds counts if no
	// other has started it again since.
	ClusteringStarted struct {
		fact
		Run     id.Run          `json:"clustering_run_id"`
		Layer   id.ConsentLayer `json:"consent_layer_id"`
		Attempt int             `json:"attempt"` // from 1
	}
	// ClusteringAssigned says which users are in a cluster; a large one has
	// several such events. They stand in a stream of the attempt and count
	// once the run is completed by that attempt.
	ClusteringAssigned struct {
		fact
		Run     id.Run          `json:"clustering_run_id"`
		Layer   id.ConsentLayer `json:"consent_layer_id"`
		Attempt int             `json:"attempt"`
		Cluster id.Cluster      `json:"cluster_id"`
		Users   []id.User       `json:"user_ids"`
		// Segment is what the run is kept to; "": to the whole layer.
		Segment id.Segment `json:"segment_id,omitempty"`
	}
	// ClusteringProfiled keeps what the next run compares a cluster with, or, of no
	// cluster, how the run read its users, so that others can be read alike. It
	// holds values of real people, under a key that ends with the layer.
	ClusteringProfiled struct {
		fact
		Run     id.Run          `json:"clustering_run_id"`
		Layer   id.ConsentLayer `json:"consent_layer_id"`
		Attempt int             `json:"attempt"`
		Cluster id.Cluster      `json:"cluster_id"`
		Profile *Personal       `json:"profile"` // JSON of a clustering.Profile, or of a traits.Schema
	}
	// ClusteringCancelled: whatever the run has found is dropped.
	ClusteringCancelled struct {
		fact
		Run   id.Run          `json:"clustering_run_id"`
		Layer id.ConsentLayer `json:"consent_layer_id"`
	}
	// ClusteringCompleted publishes the run, with the events of its clusters in
	// the same append.
	ClusteringCompleted struct {
		fact
		Run           id.Run           `json:"clustering_run_id"`
		Layer         id.ConsentLayer  `json:"consent_layer_id"`
		Attempt       int              `json:"attempt"`
		Users         int              `json:"users"`
		SchemaVersion int              `json:"schema_version"` // counts the shapes of the layer's traits
		Schema        string           `json:"schema"`         // a hash of that shape
		Silhouette    float64          `json:"silhouette"`
		Clusters      []ClusterSummary `json:"clusters"` // the largest first
		// Segment is what the run is kept to; "": to the whole layer.
		Segment id.Segment `json:"segment_id,omitempty"`
	}
	// ClusteringJudging: a process takes it on to judge a completed run.
	ClusteringJudging struct {
		fact
		Run     id.Run          `json:"clustering_run_id"`
		Layer   id.ConsentLayer `json:"consent_layer_id"`
		Attempt int             `json:"attempt"` // from 1
	}
	// ClusteringJudged says whether the clusters of a completed run are more than
	// a run finds where there are none.
	ClusteringJudged struct {
		fact
		Run       id.Run             `json:"clustering_run_id"`
		Layer     id.ConsentLayer    `json:"consent_layer_id"`
		Verdict   string             `json:"verdict"`            // "groups", "continuum", "none", or "unknown"
		Code      string             `json:"code,omitempty"`     // of "unknown", why
		Users     int                `json:"users,omitempty"`    // that were looked at
		Shuffled  *NullComparison    `json:"shuffled,omitempty"` // with users of whom no trait says anything of another
		Cloud     *NullComparison    `json:"cloud,omitempty"`    // with users of one cloud; none where the verdict is "none"
		Stability []ClusterStability `json:"stability,omitempty"`
		// Agreement is the least adjusted Rand index of the clusters with those of runs
		// at other seeds; nil where users are one cloud.
		Agreement *float64 `json:"agreement,omitempty"`
	}
	// ClusteringFailed: the run has no result; that of the last good one stays.
	ClusteringFailed struct {
		fact
		Run     id.Run          `json:"clustering_run_id"`
		Layer   id.ConsentLayer `json:"consent_layer_id"`
		Code    string          `json:"code"`          // such as "not_enough_users"
		Details string          `json:"error_details"` // a sentence that names the run
		// Segment is what the run is kept to; "": to the whole layer.
		Segment id.Segment `json:"segment_id,omitempty"`
	}
)

// ClusterSummary is a cluster as a completed run shows it.
type ClusterSummary struct {
	ID    id.Cluster `json:"id"`
	Size  int        `json:"size"`
	Label string     `json:"label"`
}

// NullComparison compares users with some that were drawn so that there are no
// groups, at the number of clusters at which the users stand out most.
type NullComparison struct {
	P          float64 `json:"p"` // the share, among draws and users, of those that stand out as much
	K          int     `json:"k"`
	Silhouette float64 `json:"silhouette"` // of the users
	Expected   float64 `json:"expected"`   // the mean of the draws
}

// ClusterStability is how much of a cluster is found again among users drawn from
// the same.
type ClusterStability struct {
	Cluster id.Cluster `json:"cluster_id"`
	Jaccard float64    `json:"jaccard"` // the mean index, 0 to 1
}

// Subject is the layer: its key is destroyed when it is retired.
func (e ClusteringProfiled) Subject() string   { return string(e.Layer) }
func (e ClusteringProfiled) Personal() []Field { return []Field{{"profile", e.Profile}} }

// Data is the public form.
func (e ClusteringCompleted) Data(client id.Client) any {
	return struct {
		Client   id.Client        `json:"client_id"`
		Layer    id.ConsentLayer  `json:"consent_layer_id"`
		Segment  id.Segment       `json:"segment_id,omitempty"`
		Run      id.Run           `json:"clustering_run_id"`
		Clusters []ClusterSummary `json:"clusters"`
	}{client, e.Layer, e.Segment, e.Run, e.Clusters}
}

// Example is a run that never was.
func (ClusteringCompleted) Example(ids *id.Source) Public {
	return ClusteringCompleted{
		Layer: id.Next[id.ConsentLayer](ids), Run: id.Next[id.Run](ids),
		Clusters: []ClusterSummary{{ID: id.Next[id.Cluster](ids), Size: 2, Label: "a test"}},
	}
}

// Data is the public form.
func (e ClusteringFailed) Data(client id.Client) any {
	return struct {
		Client  id.Client       `json:"client_id"`
		Layer   id.ConsentLayer `json:"consent_layer_id"`
		Segment id.Segment      `json:"segment_id,omitempty"`
		Details string          `json:"error_details"`
	}{client, e.Layer, e.Segment, e.Details}
}

// Example is a run that never was.
func (ClusteringFailed) Example(ids *id.Source) Public {
	return ClusteringFailed{Layer: id.Next[id.ConsentLayer](ids), Details: "This is a test; no run has failed."}
}

var clusteringEvents = []definition{
	define[ClusteringRequested]("clustering_run.requested", 3),
	define[ClusteringStarted]("clustering_run.started", 1),
	define[ClusteringAssigned]("clustering_run.assigned", 2),
	define[ClusteringProfiled]("clustering_run.profiled", 1),
	define[ClusteringCancelled]("clustering_run.cancelled", 1),
	define[ClusteringCompleted]("clustering.completed", 2),
	define[ClusteringFailed]("clustering.failed", 2),
	define[ClusteringJudging]("clustering_run.judging", 1),
	define[ClusteringJudged]("clustering_run.judged", 2),
}
