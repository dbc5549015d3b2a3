package event

import "kindred/domain/id"

// A client's trait schema counts its versions by the events of its stream: so
// each version can be had again from the log, and a replay counts alike.
type (
	// TraitSchemaInferred: what the client's users say was learnt anew. The
	// schema names values of real people, texts though none that only few share,
	// and a run that used it must find it again: so it is in the log, sealed with
	// a key of the client's own.
	TraitSchemaInferred struct {
		fact
		Client id.Client `json:"client_id"`
		Users  int       `json:"users"`  // how many there were
		Schema *Personal `json:"schema"` // JSON
	}
	// TraitSchemaOverridden carries all that the client has decided about its
	// traits, by path.
	TraitSchemaOverridden struct {
		fact
		Overrides map[string]TraitOverride `json:"overrides"`
	}
)

// TraitOverride is what a client decided about a path and what is below it;
// what is absent is inferred.
type TraitOverride struct {
	Type      string   `json:"type,omitempty"`
	Weight    *float64 `json:"weight,omitempty"` // 0 to 10
	Ignore    *bool    `json:"ignore,omitempty"`
	Sensitive *bool    `json:"sensitive,omitempty"`
}

// Sensitive are the paths that are decided to be sensitive, or not to be.
func Sensitive(overrides map[string]TraitOverride) map[string]bool {
	decided := map[string]bool{}
	for path, o := range overrides {
		if o.Sensitive != nil {
			decided[path] = *o.Sensitive
		}
	}
	return decided
}

func (e TraitSchemaInferred) Subject() string   { return string(e.Client) }
func (e TraitSchemaInferred) Personal() []Field { return []Field{{"schema", e.Schema}} }

var traitSchemaEvents = []definition{
	define[TraitSchemaInferred]("trait_schema.inferred", 1),
	define[TraitSchemaOverridden]("trait_schema.overridden", 1),
}
