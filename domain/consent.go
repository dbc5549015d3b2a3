package domain

import (
	"slices"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
)

// ConsentLayer is the fold of a consent layer's stream: a purpose, and the
// traits that may be looked at for it. Its last event says all.
type ConsentLayer struct {
	ID         id.ConsentLayer
	Name       string
	TraitPaths []string
	MatchRule  string
	Retired    bool
}

// Apply folds an event.
func (l *ConsentLayer) Apply(e event.Event) {
	switch e := e.(type) {
	case event.ConsentLayerDefined:
		*l = ConsentLayer{ID: e.Layer, Name: e.Name, TraitPaths: e.TraitPaths, MatchRule: e.MatchRule}
	case event.ConsentLayerChanged:
		*l = ConsentLayer{ID: e.Layer, Name: e.Name, TraitPaths: e.TraitPaths, MatchRule: e.MatchRule}
	case event.ConsentLayerRetired:
		*l = ConsentLayer{ID: e.Layer, Retired: true}
	}
}

// Define opens a layer.
// Faults: invalid.
func (l *ConsentLayer) Define(e event.ConsentLayerDefined) ([]event.Event, error) {
	if err := CheckName("/name", e.Name); err != nil {
		return nil, err
	}
	return []event.Event{e}, nil
}

// Change renames a layer, or changes its paths or its match rule; what is nil stays,
// and what does not change adds nothing.
// Faults: consent_layer_unknown, invalid.
func (l *ConsentLayer) Change(name *string, paths []string, matchRule *string) ([]event.Event, error) {
	if err := l.Exists(); err != nil {
		return nil, err
	}
	changed := event.ConsentLayerChanged{Layer: l.ID, Name: l.Name, TraitPaths: l.TraitPaths, MatchRule: l.MatchRule}
	if err := rename(&changed.Name, name); err != nil {
		return nil, err
	}
	set(&changed.MatchRule, matchRule)
	if paths != nil {
		changed.TraitPaths = paths
	}
	if changed.Name == l.Name && changed.MatchRule == l.MatchRule && slices.Equal(changed.TraitPaths, l.TraitPaths) {
		return nil, nil
	}
	return []event.Event{changed}, nil
}

// Retire ends a layer.
// Faults: consent_layer_unknown.
func (l *ConsentLayer) Retire() ([]event.Event, error) {
	if err := l.Exists(); err != nil {
		return nil, err
	}
	return []event.Event{event.ConsentLayerRetired{Layer: l.ID}}, nil
}

// Exists refuses where the layer is not there, or was retired.
// Faults: consent_layer_unknown.
func (l *ConsentLayer) Exists() error {
	if l.ID == "" || l.Retired {
		return fault.UnknownConsentLayer()
	}
	return nil
}

// Consent is the fold of what one user has said under one layer.
type Consent struct{ Granted bool }

// Apply folds an event.
func (c *Consent) Apply(e event.Event) {
	switch e.(type) {
	case event.ConsentGranted:
		c.Granted = true
	case event.ConsentWithdrawn:
		c.Granted = false
	}
}

// Grant gives consent. Granting twice adds nothing.
func (c *Consent) Grant(e event.ConsentGranted) []event.Event {
	if c.Granted {
		return nil
	}
	return []event.Event{e}
}

// Withdraw takes consent back, where it was given.
func (c *Consent) Withdraw(e event.ConsentWithdrawn) []event.Event {
	if !c.Granted {
		return nil
	}
	return []event.Event{e}
}
