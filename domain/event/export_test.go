package event

// Moved has changed its shape since MovedFirst.
type Moved = moved

// MovedFirst is what version 1 wrote.
type MovedFirst struct {
	fact
	City string    `json:"city"`
	Note *Personal `json:"note,omitempty"`
}

// Subject of the note.
func (MovedFirst) Subject() string { return moved{}.Subject() }

// Personal fields of the event.
func (e MovedFirst) Personal() []Field { return []Field{{"note", e.Note}} }

// FirstRegistry is that of the release that wrote version 1, NewestRegistry
// upcasts it.
func FirstRegistry() *Registry {
	return newRegistry([]definition{define[MovedFirst]("test.moved", 1)})
}

// NewestRegistry reads every version.
func NewestRegistry() *Registry { return movedRegistry() }
