package segments

import "kindred/domain/id"

// Often is the model where what changed is written and folded after a few events, and versions are due in
// rotation among a few users.
func (m Model) Often() Model {
	m.chunk, m.often = 3, &folding{least: 4, most: 8, rotation: 8}
	return m
}

// Folding is the model where changes are folded after so many events.
func (m Model) Folding(events int) Model {
	m.often = &folding{least: events, most: events, rotation: foldRotation}
	return m
}

// Parsed says whether the rule that an event carries was parsed, and is kept.
func (m Model) Parsed(by id.Event) bool { return m.rules.Get(by) != nil }
