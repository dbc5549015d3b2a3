package projections

import (
	"cmp"
	"context"
	"slices"

	"kindred/domain/clustering"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/domain/traits"
)

// Assigner says where a user would stand among the clusters of a layer.
type Assigner struct {
	Clusters Clusters
	Consent  Consent
	Users    Users
	// Profile reads what an attempt kept of a cluster, or, of no cluster, how it read its
	// users; false where it kept nothing.
	Profile func(ctx context.Context, client id.Client, of event.RunAttempt, cluster id.Cluster, profile any) (found bool, err error)
}

// Assigned is where a user would stand.
type Assigned struct {
	Cluster, Next          Cluster // Next is nothing where there is one cluster alone
	Distance, NextDistance float64
	Confidence             float64
	Terms                  []AssignedTerm
}

// AssignedTerm is what one trait adds to NextDistance² - Distance².
type AssignedTerm struct {
	Trait   string
	Nearer  float64
	Missing bool // the user has not said it, or the layer does not permit it any more
}

const clustersFound = clusterColumns + ` AND c.layer = $2 AND c.segment = '' AND NOT c.retired ORDER BY c.created_position`

// Assign finds the cluster of the layer's last completed run that a user is nearest to, by
// what it says now and the layer permits now, read as the run read its users. It records nothing.
// Faults: building, clustering_run_unknown, consent_layer_unknown, consent_missing, not_assignable,
// overloaded, quarantined, stale, user_unknown.
func (a Assigner) Assign(ctx context.Context, client id.Client, eventual bool, user id.User, layer id.ConsentLayer) (Assigned, error) {
	permitted, err := a.Consent.Layer(ctx, client, eventual, layer)
	if err != nil {
		return Assigned{}, err
	}
	who, err := a.Users.Get(ctx, client, eventual, user)
	if err != nil {
		return Assigned{}, err
	}
	granted, err := a.Consent.Granted(ctx, client, eventual, layer, []id.User{user})
	if err == nil && !granted[user] {
		err = fault.New(fault.Conflict, "consent_missing", "This user has not granted the consent layer, or has withdrawn it.")
	}
	if err != nil {
		return Assigned{}, err
	}
	clusters, err := a.Clusters.clusters(ctx, client, eventual, clustersFound, string(layer))
	if err != nil {
		return Assigned{}, err
	}
	if len(clusters) == 0 {
		return Assigned{}, notAssignable("No run of the layer has completed yet.")
	}
	flat, err := Flatten(user, who.Traits)
	if err != nil {
		return Assigned{}, err
	}
	permit := traits.Permit(permitted.TraitPaths)
	flat.Values = slices.DeleteFunc(flat.Values, func(v traits.Value) bool { return !permit(v.Path) })
	return a.among(ctx, client, clusters, flat)
}

func notAssignable(why string) error { return fault.New(fault.Conflict, "not_assignable", "%s", why) }

// among compares somebody with clusters, which one run has found.
func (a Assigner) among(ctx context.Context, client id.Client, clusters []Cluster, flat traits.Flat) (Assigned, error) {
	run, err := a.Clusters.Run(ctx, client, true, clusters[0].Run)
	if err != nil {
		return Assigned{}, err
	}
	older := notAssignable("The last run of the layer did not keep how it read its users. Request another one.")
	attempt := event.RunAttempt{Run: run.ID, Attempt: run.Attempt}
	var schema traits.Schema
	if found, err := a.Profile(ctx, client, attempt, "", &schema); err != nil || !found {
		return Assigned{}, cmp.Or(err, older)
	}
	encoder := schema.Encoder(run.CreatedAt)
	centroids := make([][]float32, len(clusters))
	for i, c := range clusters {
		var p clustering.Profile
		found, err := a.Profile(ctx, client, attempt, c.ID, &p)
		if err != nil || !found || len(p.Centroid) != len(encoder.Dimensions()) {
			return Assigned{}, cmp.Or(err, older)
		}
		centroids[i] = p.Centroid
	}
	said := map[string]bool{}
	for _, t := range schema.Traits {
		if _, ok := t.Read(flat); ok {
			said[t.Path] = true
		}
	}
	if len(said) == 0 {
		return Assigned{}, notAssignable("The user says nothing of what the clusters were made by.")
	}
	spans := clustering.Spans(schema, encoder)
	place := clustering.Locate(encoder.Append(nil, flat), centroids, spans)
	found := Assigned{
		Cluster: clusters[place.Nearest], Distance: place.Distance, NextDistance: place.NextDistance, Confidence: place.Confidence,
	}
	if place.Next >= 0 {
		found.Next = clusters[place.Next]
	}
	for _, t := range place.Terms {
		path := encoder.Dimensions()[spans[t.Trait].First].Path
		found.Terms = append(found.Terms, AssignedTerm{Trait: path, Nearer: t.By, Missing: !said[path]})
	}
	return found, nil
}
