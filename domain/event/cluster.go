package event

import "kindred/domain/id"

type (
	// ClusterFormed: a run found a cluster that continues no earlier one.
	ClusterFormed struct {
		fact
		ClusterState
		Ancestors []id.Cluster `json:"ancestors,omitempty"` // of the last run, which it holds a large part of
	}
	// ClusterKept: a run found a cluster again.
	ClusterKept struct {
		fact
		ClusterState
		Ancestors   []id.Cluster        `json:"ancestors,omitempty"` // others of the last run
		Comparisons []ClusterComparison `json:"comparisons"`
	}
	// ClusterRetired: a run did not find a cluster again.
	ClusterRetired struct {
		fact
		Cluster     id.Cluster      `json:"cluster_id"`
		Layer       id.ConsentLayer `json:"consent_layer_id"`
		Run         id.Run          `json:"clustering_run_id"`
		Descendants []id.Cluster    `json:"descendants,omitempty"` // that hold a large part of it
	}
	// ClusterDriftDetected: a cluster is made up otherwise than it was.
	ClusterDriftDetected struct {
		fact
		Cluster  id.Cluster      `json:"cluster_id"`
		Layer    id.ConsentLayer `json:"consent_layer_id"`
		Run      id.Run          `json:"clustering_run_id"`
		Severity string          `json:"severity"` // "moderate" or "major"
		Causes   []DriftCause    `json:"causes"`
	}
)

// ClusterState is a cluster as a run found it.
type ClusterState struct {
	Cluster      id.Cluster      `json:"cluster_id"`
	Layer        id.ConsentLayer `json:"consent_layer_id"`
	Run          id.Run          `json:"clustering_run_id"`
	First        RunAttempt      `json:"first"` // that formed it
	Size         int             `json:"size"`
	Label        string          `json:"label"`
	Spread       float64         `json:"spread"` // root mean square distance of its members from their mean
	Distinctions []Distinction   `json:"distinctions"`
	Standing     []DriftCause    `json:"standing,omitempty"` // drift that was told and still stands
}

// RunAttempt names the attempt of a run that completed it.
type RunAttempt struct {
	Run     id.Run `json:"clustering_run_id"`
	Attempt int    `json:"attempt"`
}

// Distinction is a trait that sets a cluster apart.
type Distinction struct {
	Path   string  `json:"path"`
	Type   string  `json:"type"`
	Level  string  `json:"level,omitempty"` // of a type that has levels; at least 10 members hold it
	Effect float64 `json:"effect"`          // in robust standard deviations
	Here   float64 `json:"here"`            // median or share within the cluster
	All    float64 `json:"all"`             // and among all users of the run
}

// ClusterComparison is what became of a cluster since an earlier run.
type ClusterComparison struct {
	Baseline    string       `json:"baseline"` // "previous" or "first"
	With        id.Run       `json:"with"`
	Judged      bool         `json:"judged"` // false: too few users to tell
	Jaccard     float64      `json:"jaccard"`
	ShareBefore float64      `json:"share_before"`
	ShareAfter  float64      `json:"share_after"`
	Shift       float64      `json:"centroid_shift"` // in pooled standard deviations
	Causes      []DriftCause `json:"causes"`
	Traits      []TraitDrift `json:"traits"` // the most changed first; not all of many

	Turnover *ClusterTurnover `json:"turnover,omitempty"` // nil where the earlier run did not keep how it read its users
}

// ClusterTurnover is what became of the people of a cluster, by the cut of the earlier
// run: so another cut of the same people does not count.
type ClusterTurnover struct {
	Stayed  int     `json:"stayed"`   // were in it, and would be now
	Left    int     `json:"left"`     // were in it, and would now be in another
	Came    int     `json:"came"`     // were in another, and would now be in it
	New     int     `json:"new"`      // were not in the earlier run, and would be in it
	Gone    int     `json:"gone"`     // were in it, and are not in this run
	SameCut float64 `json:"same_cut"` // how much of it the two cuts share now, 0 to 1
}

// TraitDrift is how otherwise a trait is spread within a cluster.
type TraitDrift struct {
	Path  string  `json:"path"`
	PSI   float64 `json:"psi"`   // population stability index
	Limit float64 `json:"limit"` // above which it has drifted
}

// DriftCause is one thing in which a cluster has become another.
type DriftCause struct {
	Kind     string  `json:"kind"`             // "trait", "members" or "size"
	Baseline string  `json:"baseline"`         // compared with the "previous" or the "first" run
	Trait    string  `json:"trait,omitempty"`  // its path
	Amount   float64 `json:"amount"`           // PSI; 1 - Jaccard index; relative change of the share
	Severity string  `json:"severity"`         // "moderate" or "major"
	Origin   string  `json:"origin,omitempty"` // "people_changed" or "others_came"; empty where that is not known
	Effect   float64 `json:"effect,omitempty"` // of a trait, in standard deviations; negative where it fell
	Level    string  `json:"level,omitempty"`  // of a trait, the level whose share changed most
	Before   float64 `json:"before,omitempty"` // its share in the earlier run
	After    float64 `json:"after,omitempty"`  // its share now
}

// Data is the public form.
func (e ClusterDriftDetected) Data(client id.Client) any {
	return struct {
		Client  id.Client  `json:"client_id"`
		Cluster id.Cluster `json:"cluster_id"`
	}{client, e.Cluster}
}

// Example is a cluster that never was.
func (ClusterDriftDetected) Example(ids *id.Source) Public {
	return ClusterDriftDetected{Cluster: id.Next[id.Cluster](ids)}
}

var clusterEvents = []definition{
	define[ClusterFormed]("cluster.formed", 1),
	define[ClusterKept]("cluster.kept", 1),
	define[ClusterRetired]("cluster.retired", 1),
	define[ClusterDriftDetected]("cluster.drift_detected", 1),
}
