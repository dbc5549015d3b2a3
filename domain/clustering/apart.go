package clustering

import (
	"time"

	"kindred/domain/traits"
)

// Apart finds what sets some users apart from all of whom they are a part, as a label
// says it of a cluster. Its memory does not grow with the number of users.
type Apart struct{ survey *survey }

// NewApart begins with nobody. Dates are read as of a time, in days before it.
func NewApart(s traits.Schema, asOf time.Time) *Apart {
	return &Apart{newSurvey(Question{Schema: s, AsOf: asOf, Result: Result{K: 1}})}
}

// Count adds a user, who is one of the some or not.
func (a *Apart) Count(f traits.Flat, some bool) {
	s := a.survey
	for i := range s.readings {
		s.readings[i].read(s.reader, i, f)
	}
	if some {
		s.groups[0].count(s.reader.traits, s.readings, &s.random)
	}
	s.groups[1].count(s.reader.traits, s.readings, &s.random)
}

// Distinctions are what sets them apart, the largest effect first, ten at most.
func (a *Apart) Distinctions() []Distinction { return a.survey.distinctions(0, a.survey.scales()) }
