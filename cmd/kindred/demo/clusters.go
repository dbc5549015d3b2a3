package demo

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"kindred/backoff"
)

const (
	// clusterable is how many people it takes to tell a story of clusters: a
	// cluster's drift is judged from 50 members on.
	clusterable = 200
	maxPaths    = 256
	lookEvery   = 100 * time.Millisecond
)

type layer struct {
	ID, Name   string
	TraitPaths []string `json:"trait_paths"`
}

type summary struct {
	ID, Label string
	Size      int
}

type run struct {
	ID, Status   string
	ErrorDetails string `json:"error_details"`
	Users        int
	Clusters     []summary
	Quality      struct{ Silhouette float64 }
	Progress     struct {
		Share float64
		Phase string
	}
}

type cluster struct {
	ID, Label string
	Size      int `json:"cluster_size"`
	Quality   struct{ Spread float64 }
}

// defineLayer names a purpose and the traits that it may look at, and has a run
// fail, since nobody has consented.
func (s *story) defineLayer(ctx context.Context) error {
	paths := s.crowd.paths
	if len(paths) == 0 { // a file's: all that the first page has
		seen := map[string]any{}
		for _, u := range s.people {
			for name := range u.Traits {
				seen[name] = nil
			}
		}
		paths = sortedKeys(seen)
		paths = paths[:min(maxPaths, len(paths))]
	}
	err := s.api.do(ctx, request{
		method: "POST", path: "/api/v1/consent_layers", want: 201,
		body: map[string]any{"name": "Segments", "trait_paths": paths},
	}, &s.layer)
	if err != nil {
		return err
	}
	if s.layer.ID == "" || !slices.Equal(s.layer.TraitPaths, paths) {
		return fmt.Errorf("the layer is %+v, not one of %s", s.layer, strings.Join(paths, ", "))
	}
	s.page.say("%q may look at %s.", s.layer.Name, cut(strings.Join(paths, ", "), 70))
	failed, err := s.runOf(ctx, nil)
	if err != nil {
		return err
	}
	if failed.Status != "failed" || !strings.Contains(failed.ErrorDetails, failed.ID) {
		return fmt.Errorf("a run over nobody is %s (%q), not failed with a reason that names it", failed.Status, failed.ErrorDetails)
	}
	d, err := s.awaitOne(ctx, subject{kind: "clustering.failed", id: s.layer.ID})
	if err != nil {
		return err
	}
	if d.details != failed.ErrorDetails {
		return fmt.Errorf("clustering.failed says %q, but the run %q", d.details, failed.ErrorDetails)
	}
	s.page.say("A run fails, and clustering.failed says why:")
	s.page.say("  %s", d.details)
	return nil
}

// runOf starts a run and waits until it has ended.
func (s *story) runOf(ctx context.Context, ask map[string]any) (run, error) {
	body := map[string]any{"consent_layer_id": s.layer.ID}
	maps.Copy(body, ask)
	var r run
	if err := s.api.do(ctx, request{method: "POST", path: "/api/v1/clustering_runs", want: 202, body: body}, &r); err != nil {
		return r, err
	}
	defer s.page.endProgress()
	for started := time.Now(); ; {
		if err := s.api.do(ctx, request{method: "GET", path: "/api/v1/clustering_runs/" + r.ID, want: 200}, &r); err != nil {
			return r, err
		}
		switch {
		case r.Status != "pending" && r.Status != "running":
			return r, nil
		case time.Since(started) > s.options.Patience:
			return r, fmt.Errorf("the run %s is still %s after %s", r.ID, r.Status, s.options.Patience)
		}
		s.page.progress("%3.0f %%  %s", 100*r.Progress.Share, r.Progress.Phase)
		if err := backoff.Sleep(ctx, lookEvery); err != nil {
			return r, err
		}
	}
}

// complete has a run complete.
func (s *story) complete(ctx context.Context, ask map[string]any) error {
	r, err := s.runOf(ctx, ask)
	if err != nil {
		return err
	}
	if r.Status != "completed" || len(r.Clusters) == 0 {
		return fmt.Errorf("the run %s is %s with %d clusters: %s", r.ID, r.Status, len(r.Clusters), r.ErrorDetails)
	}
	s.run = r
	return nil
}

// awaitClusters waits until the last run is told of, and compares the two.
func (s *story) awaitClusters(ctx context.Context) error {
	d, err := s.awaitOne(ctx, subject{kind: "clustering.completed", id: s.run.ID})
	if err != nil {
		return err
	}
	if d.layer != s.layer.ID || !slices.Equal(d.clusters, s.run.Clusters) {
		return fmt.Errorf("clustering.completed tells of %+v, but the run found %+v", d.clusters, s.run.Clusters)
	}
	return nil
}

// awaitOne waits for the one event about something.
func (s *story) awaitOne(ctx context.Context, about subject) (delivery, error) {
	s.expected[about] = 0
	got, err := s.awaitExpected(ctx)
	if err != nil {
		return delivery{}, err
	}
	at := slices.IndexFunc(got, func(d delivery) bool { return d.subject == about })
	return got[at], nil
}

// findClusters has everybody consent, and looks at who belongs together.
func (s *story) findClusters(ctx context.Context) error {
	var granted struct{ Changed, Unchanged int }
	err := s.api.do(ctx, request{
		method: "POST", path: "/api/v1/consent_layers/" + s.layer.ID + "/grants", want: 200,
		body: map[string]any{"all": true, "source": "demo"},
	}, &granted)
	if err != nil {
		return err
	}
	if granted.Changed == 0 || granted.Changed+granted.Unchanged > s.imported.people {
		return fmt.Errorf("%d of %d people have consented, and %d had before", granted.Changed, s.imported.people, granted.Unchanged)
	}
	s.page.say("All %s people have consented to %q.", count(s.imported.people), s.layer.Name)
	if s.imported.people < clusterable {
		s.page.say("It takes %d of them to tell of clusters and their drift.", clusterable)
		return nil
	}
	start := time.Now()
	if err := s.complete(ctx, map[string]any{"seed": s.options.Seed}); err != nil {
		return err
	}
	took := time.Since(start)
	if err := s.awaitClusters(ctx); err != nil {
		return err
	}
	if s.run.Users != s.imported.people {
		return fmt.Errorf("the clusters have %d members, but %d people have consented", s.run.Users, s.imported.people)
	}
	s.page.say("%d clusters in %s, silhouette %s; clustering.completed tells the same:",
		len(s.run.Clusters), brief(took), fixed(s.run.Quality.Silhouette, 2))
	if err := s.showClusters(ctx); err != nil {
		return err
	}
	s.members, err = s.membersOf(ctx, s.cluster.ID)
	if err != nil {
		return err
	}
	if len(s.members) != s.cluster.Size {
		return fmt.Errorf("%d members are listed of the cluster %s, which has %d", len(s.members), s.cluster.ID, s.cluster.Size)
	}
	var names []string
	for _, m := range s.members[:min(5, len(s.members))] {
		names = append(names, m.ExternalID)
	}
	s.page.blank()
	s.page.say("In the largest: %s and %s more.", strings.Join(names, ", "), count(len(s.members)-len(names)))
	return nil
}

// showClusters lists the clusters of the last run, and notes the largest.
func (s *story) showClusters(ctx context.Context) error {
	var list struct{ Data []cluster }
	query := url.Values{"consent_layer_id": {s.layer.ID}, "limit": {"200"}}
	if err := s.api.do(ctx, request{method: "GET", path: "/api/v1/clusters", query: query, want: 200}, &list); err != nil {
		return err
	}
	if len(list.Data) != len(s.run.Clusters) {
		return fmt.Errorf("%d clusters are listed, but the run found %d", len(list.Data), len(s.run.Clusters))
	}
	byID := map[string]cluster{}
	for _, c := range list.Data {
		byID[c.ID] = c
	}
	var rows [][]string
	for _, found := range s.run.Clusters {
		c := byID[found.ID]
		if c.Label != found.Label || c.Size != found.Size {
			return fmt.Errorf("the cluster %s is listed as %+v, but the run found %+v", found.ID, c, found)
		}
		rows = append(rows, []string{
			cut(c.Label, 58), count(c.Size), fixed(100*float64(c.Size)/float64(s.run.Users), 1) + " %", fixed(c.Quality.Spread, 2), cut(c.ID, 12),
		})
	}
	s.page.table([]string{"cluster", "size", "share", "spread", "id"}, rows)
	s.cluster = byID[s.run.Clusters[0].ID]
	return nil
}

type clusterMember struct {
	UserID     string `json:"user_id"`
	ExternalID string `json:"external_id"`
}

// membersOf lists all members of a cluster.
func (s *story) membersOf(ctx context.Context, id string) ([]clusterMember, error) {
	var members []clusterMember
	query := url.Values{"limit": {"200"}}
	for len(members) <= s.imported.people {
		var page struct {
			Data       []clusterMember
			NextCursor string `json:"next_cursor"`
		}
		err := s.api.do(ctx, request{method: "GET", path: "/api/v1/clusters/" + id + "/members", query: query, want: 200}, &page)
		if err != nil {
			return nil, err
		}
		members = append(members, page.Data...)
		if page.NextCursor == "" {
			return members, nil
		}
		query.Set("cursor", page.NextCursor)
	}
	return nil, fmt.Errorf("the cluster %s has more members than there are people", id)
}
