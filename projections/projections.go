// Package projections builds the read models: what has happened, as tables
// that can be listed. Each file, or folder, holds one model, its table, how events
// change it and how it is read. A model holds nothing that a replay of the log would
// not build again; personal fields stand in it as sealed as in the log.
package projections

import (
	"kindred/eventstore/projector"
	"kindred/projections/readmodel"
	"kindred/projections/segments"
)

// All lists the read models of the service.
func All() []projector.ReadModel {
	return []projector.ReadModel{
		Clients{},
		APIKeys{},
		Sessions{},
		Users{},
		Webhooks{},
		Matches{},
		Revocations{},
		Claims{},
		Interactions{},
		Consent{},
		TraitSchemas{},
		Campaigns{},
		Spends{},
		EventIDs{},
		History{},
		Clusters{},
		PublicEvents{},
		Statistics{},
		segments.New(readmodel.Reader{}),
		Sandboxes{},
	}
}

// Names are those of all read models, as commands and requests name them.
func Names() []string {
	var names []string
	for _, m := range All() {
		names = append(names, m.Name())
	}
	return names
}
