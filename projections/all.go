package projections

import "kindred/eventstore/projector"

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
		NewSegments(Reader{}),
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
