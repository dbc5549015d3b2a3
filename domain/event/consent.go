package event

import "kindred/domain/id"

type (
	// ConsentLayerDefined: the client names a purpose and the traits that may
	// be looked at for it.
	ConsentLayerDefined struct {
		fact
		Layer      id.ConsentLayer `json:"consent_layer_id"`
		Name       string          `json:"name"`
		TraitPaths []string        `json:"trait_paths"`
		MatchRule  string          `json:"match_rule,omitempty"` // of pairs, as in Settings
	}
	// ConsentLayerChanged carries the name, the paths and the match rule as they are from now on.
	ConsentLayerChanged struct {
		fact
		Layer      id.ConsentLayer `json:"consent_layer_id"`
		Name       string          `json:"name"`
		TraitPaths []string        `json:"trait_paths"`
		MatchRule  string          `json:"match_rule,omitempty"` // of pairs, as in Settings
	}
	// ConsentLayerRetired: nothing is done under the layer any more.
	ConsentLayerRetired struct {
		fact
		Layer id.ConsentLayer `json:"consent_layer_id"`
	}
	// ConsentGrantedToAll: the client declared that every user who was there
	// before this event has granted the layer. It stands in a stream of such
	// declarations; a ConsentGranted per user follows from it.
	ConsentGrantedToAll struct {
		fact
		Layer id.ConsentLayer `json:"consent_layer_id"`
	}
	// ConsentWithdrawnFromAll: the same for a withdrawal.
	ConsentWithdrawnFromAll struct {
		fact
		Layer id.ConsentLayer `json:"consent_layer_id"`
	}
	// ConsentOfAllChanged: what came of such a declaration, once all users are
	// done.
	ConsentOfAllChanged struct {
		fact
		Layer     id.ConsentLayer `json:"consent_layer_id"`
		Granted   bool            `json:"granted"`
		Changed   int             `json:"changed"`   // users
		Unchanged int             `json:"unchanged"` // users who had said so before
	}
	// ConsentChangeRequested: the client asked, in a way that may be repeated, to
	// change the consents of users it named. It stands alone in its stream: what
	// these users say after it stands, however often the request is repeated.
	ConsentChangeRequested struct {
		fact
		Layer   id.ConsentLayer `json:"consent_layer_id"`
		Granted bool            `json:"granted"`
	}
	// ConsentGranted: a user's traits may be looked at under a layer.
	ConsentGranted struct {
		fact
		Layer  id.ConsentLayer `json:"consent_layer_id"`
		User   id.User         `json:"user_id"`
		Source *Personal       `json:"source,omitempty"` // where the consent was given, in the client's words
	}
	// ConsentWithdrawn: they may not any more.
	ConsentWithdrawn struct {
		fact
		Layer  id.ConsentLayer `json:"consent_layer_id"`
		User   id.User         `json:"user_id"`
		Source *Personal       `json:"source,omitempty"`
	}
)

func (e ConsentGranted) Subject() string     { return string(e.User) }
func (e ConsentGranted) Personal() []Field   { return []Field{{"source", e.Source}} }
func (e ConsentWithdrawn) Subject() string   { return string(e.User) }
func (e ConsentWithdrawn) Personal() []Field { return []Field{{"source", e.Source}} }

var consentEvents = []definition{
	define[ConsentLayerDefined]("consent_layer.defined", 2), // version 1 knew no match rule
	define[ConsentLayerChanged]("consent_layer.changed", 2),
	define[ConsentLayerRetired]("consent_layer.retired", 1),
	define[ConsentGrantedToAll]("consent.granted_to_all", 1),
	define[ConsentWithdrawnFromAll]("consent.withdrawn_from_all", 1),
	define[ConsentOfAllChanged]("consent.of_all_changed", 1),
	define[ConsentChangeRequested]("consent.change_requested", 1),
	define[ConsentGranted]("consent.granted", 1),
	define[ConsentWithdrawn]("consent.withdrawn", 1),
}
