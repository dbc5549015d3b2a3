package policies

import (
	"context"
	"time"

	"kindred/domain/clustering"
	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/domain/traits"
)

// division is how an earlier run divided its users, as far as it kept that.
type division struct {
	clusters  map[id.Cluster]int // by their places among the centroids
	centroids [][]float32        // nil where one of them cannot be read any more
	encoder   *traits.Encoder    // nil where it did not keep how it read its users
}

// division reads how an attempt divided its users into these clusters.
func (a *attempt) division(ctx context.Context, of event.RunAttempt, clusters []id.Cluster) (d division, err error) {
	d.clusters = make(map[id.Cluster]int, len(clusters))
	var p clustering.Profile
	for i, c := range clusters {
		p = clustering.Profile{}
		found, err := a.Commands.Profile(ctx, a.run.Client, of, c, &p)
		if err != nil || !found {
			return division{}, err
		}
		d.clusters[c], d.centroids = i, append(d.centroids, p.Centroid)
	}
	var schema traits.Schema
	found, err := a.Commands.Profile(ctx, a.run.Client, of, "", &schema)
	if err != nil || !found {
		return d, err
	}
	const day = 24 * 60 * 60
	encoder := schema.Encoder(time.Unix(int64(p.AsOf*day), 0))
	for _, at := range d.centroids {
		if len(at) != len(encoder.Dimensions()) {
			return d, nil
		}
	}
	d.encoder = encoder
	return d, nil
}

// of says which users of this run were in which of the clusters.
func (d division) of(assigned map[id.Cluster][]id.User, places map[id.User]int) clustering.Division {
	then := make([]uint16, len(places))
	for i := range then {
		then[i] = clustering.Nobody
	}
	for cluster, users := range assigned {
		for _, u := range users {
			if place, both := places[u]; both {
				then[place] = uint16(d.clusters[cluster]) //nolint:gosec // G115: at most MaxK
			}
		}
	}
	return clustering.Division{Encoder: d.encoder, Centroids: d.centroids, Then: then}
}
