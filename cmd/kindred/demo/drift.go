package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

type drift struct {
	RunID  string `json:"clustering_run_id"`
	Causes []struct {
		Kind, Trait, Severity string
		Amount                float64
	}
}

// shift moves the members of the largest cluster along one trait, clusters
// again, and looks at what kept its id and at what has drifted.
func (s *story) shift(ctx context.Context) error {
	if s.run.ID == "" {
		s.page.say("There are no clusters to shift.")
		return nil
	}
	before := map[string]bool{}
	for _, c := range s.run.Clusters {
		before[c.ID] = true
	}
	m := s.movement()
	moved, _, err := s.streamIn(ctx, s.moved(m))
	if err != nil {
		return err
	}
	if moved.Updated != len(s.members) || moved.Failed != 0 {
		return fmt.Errorf("%d of %d members were changed", moved.Updated, len(s.members))
	}
	s.page.say("%s for all %s members. A second run finds:", m, count(len(s.members)))
	if err := s.complete(ctx, map[string]any{"seed": s.options.Seed, "k": max(2, len(before))}); err != nil {
		return err
	}
	rows, kept, err := s.drifted(ctx, before)
	if err != nil {
		return err
	}
	if err := s.awaitClusters(ctx); err != nil {
		return err
	}
	if err := s.showClusters(ctx); err != nil {
		return err
	}
	s.page.blank()
	s.page.say("%d of %d clusters kept their ids. What has drifted, told once for each by cluster.drift_detected:", kept, len(before))
	s.page.table([]string{"cluster", "cause", "trait", "amount", "severity", "id"}, rows)
	return nil
}

// drifted lists what has drifted since the first run, and notes that each
// cluster that has is to be told of.
func (s *story) drifted(ctx context.Context, before map[string]bool) (rows [][]string, kept int, err error) {
	for _, c := range s.run.Clusters {
		if !before[c.ID] {
			continue
		}
		kept++
		var list struct{ Data []drift }
		if err := s.api.do(ctx, request{method: "GET", path: "/api/v1/clusters/" + c.ID + "/drift", want: 200}, &list); err != nil {
			return nil, 0, err
		}
		if len(list.Data) != 1 || list.Data[0].RunID != s.run.ID {
			return nil, 0, fmt.Errorf("the drift of the cluster %s is %+v, not one entry of the run %s", c.ID, list.Data, s.run.ID)
		}
		causes := list.Data[0].Causes
		if len(causes) > 0 {
			s.expected[subject{kind: "cluster.drift_detected", id: c.ID}] = 0
		}
		for _, cause := range causes[:min(3, len(causes))] {
			rows = append(rows, []string{cut(c.Label, 36), cause.Kind, cause.Trait, fixed(cause.Amount, 2), cause.Severity, cut(c.ID, 12)})
		}
	}
	if len(rows) == 0 {
		return nil, 0, errors.New("nothing has drifted, though a whole cluster was moved")
	}
	return rows, kept, nil
}

// movement is what happens to a trait: a number grows, or anything becomes one
// value.
type movement struct {
	trait string
	by    float64
	to    any // nil: it grows
}

func (m movement) String() string {
	if m.to == nil {
		return m.trait + " grows by " + show(m.by)
	}
	return m.trait + " becomes " + show(m.to)
}

// movement chooses the first trait that is mostly a number, which grows by half
// of its range, or else the first of all.
func (s *story) movement() movement {
	for _, path := range s.layer.TraitPaths {
		var numbers []float64
		for _, u := range s.people {
			if v, ok := u.Traits[path].(float64); ok {
				numbers = append(numbers, v)
			}
		}
		if len(numbers) <= len(s.people)/2 {
			continue
		}
		if by := (slices.Max(numbers) - slices.Min(numbers)) / 2; by > 0 {
			return movement{trait: path, by: by}
		}
	}
	first := s.layer.TraitPaths[0]
	return movement{trait: first, to: "other"}
}

// moved are the members of the largest cluster, as they came in, but moved.
func (s *story) moved(m movement) crowd {
	inside := map[string]bool{}
	for _, member := range s.members {
		inside[member.ExternalID] = true
	}
	people := func(yield func(person, error) bool) {
		for p, err := range s.crowd.people {
			if err == nil && !inside[p.ExternalID] {
				continue
			}
			if v, ok := p.Traits[m.trait].(float64); ok && m.to == nil {
				p.Traits[m.trait] = v + m.by
			} else if m.to != nil && err == nil {
				p.Traits[m.trait] = m.to
			}
			if !yield(p, err) {
				return
			}
		}
	}
	return crowd{people: people, total: len(inside)}
}
