package event

import "kindred/domain/id"

type (
	// EndUserCreated opens a user's stream. Generation counted, in earlier
	// releases, how often this external id was created anew after an erasure.
	EndUserCreated struct {
		fact
		User       id.User   `json:"user_id"`
		Generation int       `json:"generation"`
		ExternalID *Personal `json:"external_id"`
		Traits     *Personal `json:"traits"` // a JSON object
	}
	// EndUserTraitsChanged carries all traits, as they are from now on.
	EndUserTraitsChanged struct {
		fact
		User   id.User   `json:"user_id"`
		Traits *Personal `json:"traits"`
	}
	// EndUserErased: the person asked to be forgotten. The key of the user is
	// destroyed right after, and with it all that was sealed.
	EndUserErased struct {
		fact
		User id.User `json:"user_id"`
	}
)

// Opens says that a user begins with it.
func (EndUserCreated) Opens() {}

// ExternalName is the kind of name that an external id is.
const ExternalName = "external_id"

// Name is the external id.
func (e EndUserCreated) Name() (kind string, name *Personal) { return ExternalName, e.ExternalID }

func (e EndUserCreated) Subject() string { return string(e.User) }
func (e EndUserCreated) Personal() []Field {
	return []Field{{"external_id", e.ExternalID}, {"traits", e.Traits}}
}
func (e EndUserTraitsChanged) Subject() string   { return string(e.User) }
func (e EndUserTraitsChanged) Personal() []Field { return []Field{{"traits", e.Traits}} }

var endUserEvents = []definition{
	define[EndUserCreated]("end_user.created", 1),
	define[EndUserTraitsChanged]("end_user.traits_changed", 1),
	define[EndUserErased]("end_user.erased", 1),
}
