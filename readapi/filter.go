package readapi

import (
	"context"
	"fmt"
	"time"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/domain/rule"
	"kindred/domain/traits"
	"kindred/eventstore"
	"kindred/httpapi"
	"kindred/projections"
	"kindred/projections/readmodel"
	"kindred/projections/segments"
)

const (
	// lookFor is how long a page looks for users whom a filter names: a read gives way
	// after 0.5 s, and the caller goes on where this one stopped.
	// limit: requests | how long a page looks for users whom `filter` names | {lookFor} | a short page with `next_cursor`
	lookFor = 250 * time.Millisecond
	// lookAt is how many users are read at a time.
	// limit: models | users that a filter looks at, at a time | {lookAt}
	lookAt = 201
)

// filteredUsers reads on until a page is full of users whom a filter names, or until it
// has looked for long enough.
func (a *API) filteredUsers(ctx context.Context, name string, query projections.UserQuery, filter *rule.Rule) (
	found []projections.User, next *httpapi.NextCursor, err error,
) {
	client, eventual := asked(ctx)
	now, _, err := a.Clock(ctx, client)
	if err != nil {
		return nil, nil, err
	}
	page, began, taken := query.Page, a.Now(), 0
	goOn := func(place eventstore.Position) *httpapi.NextCursor {
		cursor := a.Cursors.Encode(client, name, string(place))
		return &cursor
	}
	for {
		query.Page.Limit = lookAt
		users, err := a.Users.List(ctx, client, eventual, query)
		if err != nil {
			return nil, nil, err
		}
		last := len(users) < lookAt && readmodel.Fitting(users, projections.UserSize) == len(users)
		in, err := a.segmentsOf(ctx, filter, users)
		if err != nil {
			return nil, nil, err
		}
		known, err := segments.Model{Reader: a.Reader}.Known(ctx, client, eventual, filter, each(users, func(u projections.User) id.User { return u.ID }))
		if err != nil {
			return nil, nil, err
		}
		named := make([]bool, len(users))
		err = a.Reader.Judging.Do(ctx, client, func() (err error) {
			for i := 0; i < len(users) && err == nil; i++ {
				if err = ctx.Err(); err == nil { // who asked may be gone
					named[i], err = judge(filter, client, &users[i], in[users[i].ID], known, now)
				}
			}
			return err
		})
		if err != nil {
			return nil, nil, err
		}
		for i := range users {
			u := &users[i]
			if named[i] && (len(found) == page.Limit-1 || taken >= readmodel.MaxPage) {
				return found, goOn(query.Page.After), nil // there is one more
			}
			if named[i] {
				found, taken = append(found, *u), taken+u.Size
			}
			query.Page.After = query.Place(*u)
		}
		if last {
			return found, nil, nil
		}
		if a.Now().Sub(began) > lookFor {
			return found, goOn(query.Page.After), nil
		}
	}
}

// userRule reads a rule of users at a place of a request, under a consent layer or none.
func (a *API) userRule(ctx context.Context, pointer, text string, layer projections.ConsentLayer) (*rule.Rule, error) {
	return a.rule(ctx, pointer, text, rule.Users, layer)
}

// rule reads a rule at a place of a request, under a consent layer or none.
func (a *API) rule(ctx context.Context, pointer, text string, scope rule.Scope, layer projections.ConsentLayer) (*rule.Rule, error) {
	client, eventual := asked(ctx)
	bounds, err := a.bounds(ctx, layer)
	if err != nil {
		return nil, err
	}
	var parsed *rule.Rule
	err = a.Reader.Judging.Do(ctx, client, func() (err error) {
		parsed, err = rule.ParseAt(pointer, text, scope)
		return err
	})
	if err == nil {
		err = parsed.CheckAt(pointer, bounds)
	}
	if err != nil {
		return nil, err
	}
	if err := parsed.CheckLayers(pointer, func(layer string) error {
		_, err := projections.Consent{Reader: a.Reader}.Layer(ctx, client, eventual, id.ConsentLayer(layer))
		return err
	}); err != nil {
		return nil, err
	}
	return parsed, segments.Model{Reader: a.Reader}.CheckNamed(ctx, client, eventual, pointer, parsed, layer.ID)
}

// bounds are what a rule may read of the client's users, under a consent layer or none.
func (a *API) bounds(ctx context.Context, layer projections.ConsentLayer) (rule.Bounds, error) {
	client, eventual := asked(ctx)
	decided, err := projections.TraitSchemas{Reader: a.Reader}.Sensitive(ctx, client, eventual)
	return rule.Bounds{Layered: layer.ID != "", Paths: layer.TraitPaths, Decided: decided}, err
}

// segmentsOf reads which segments users are in, where a filter asks for any.
func (a *API) segmentsOf(ctx context.Context, filter *rule.Rule, users []projections.User) (map[id.User]map[string]bool, error) {
	if len(filter.Segments()) == 0 {
		return nil, nil
	}
	client, eventual := asked(ctx)
	return segments.Model{Reader: a.Reader}.Of(ctx, client, eventual, each(users, func(u projections.User) id.User { return u.ID }))
}

// judge says whether a filter surely names a user, who is in some segments.
func judge(filter *rule.Rule, client id.Client, u *projections.User, in map[string]bool,
	known func(id.User, rule.Facts) rule.Facts, now time.Time,
) (bool, error) {
	facts := known(u.ID, rule.Facts{
		ExternalID: u.ExternalID, CreatedAt: u.CreatedAt, UpdatedAt: u.UpdatedAt, Now: now,
		Client: string(client), ID: string(u.ID), InSegment: func(segment string) bool { return in[segment] },
	})
	var err error
	if facts.Traits, err = traits.All(u.Traits); err != nil {
		return false, fmt.Errorf("read the traits of a user: %w", err)
	}
	return filter.Judge(&facts) == rule.True, nil
}

// filteredMembers lists those of a cluster's members whom a filter names, or who are in a
// segment; both may read what the cluster's layer permits. It reads on as filteredUsers
// does.
func (a *API) filteredMembers(ctx context.Context, cluster projections.Cluster, p httpapi.ListClusterMembersParams) (httpapi.ListClusterMembersResponseObject, error) {
	client, eventual := asked(ctx)
	layer, err := projections.Consent{Reader: a.Reader}.Layer(ctx, client, eventual, cluster.Layer)
	if err != nil {
		return nil, err
	}
	segment, err := a.segmentReady(ctx, p.SegmentID, event.Within{Layer: layer.ID, TraitPaths: layer.TraitPaths})
	if err != nil {
		return nil, err
	}
	var parsed *rule.Rule
	if p.Filter != nil {
		if parsed, err = a.userRule(ctx, "filter", *p.Filter, layer); err != nil {
			return nil, err
		}
	}
	name := filtered("members", string(cluster.ID), httpapi.Or(p.Filter, ""), string(segment))
	page, err := a.page(client, name, p.Limit, p.Cursor)
	if err != nil {
		return nil, err
	}
	answer := httpapi.ListClusterMembers200JSONResponse{Data: []httpapi.ClusterMember{}}
	goOn := func() (httpapi.ListClusterMembersResponseObject, error) {
		answer.NextCursor = new(a.Cursors.Encode(client, name, string(page.After)))
		return answer, nil
	}
	now, _, err := a.Clock(ctx, client)
	if err != nil {
		return nil, err
	}
	for began := a.Now(); ; {
		members, err := projections.Clusters{Reader: a.Reader}.Members(ctx, client, eventual, cluster.ID, readmodel.Page{After: page.After, Limit: lookAt})
		if err != nil {
			return nil, err
		}
		named, err := segments.Model{Reader: a.Reader}.NamedAlone(ctx, client, eventual, &rule.Filter{Rule: parsed, Segment: string(segment), Layer: string(layer.ID), Now: now},
			each(members, func(m projections.ClusterMember) id.User { return m.User }))
		if err != nil {
			return nil, err
		}
		for _, m := range members {
			if named[m.User] && len(answer.Data) == page.Limit-1 {
				return goOn() // there is one more
			}
			if named[m.User] {
				answer.Data = append(answer.Data, clusterMemberBody(m))
			}
			page.After = eventstore.Position(m.User)
		}
		if len(members) < lookAt {
			return answer, nil
		}
		if a.Now().Sub(began) > lookFor {
			return goOn()
		}
	}
}
