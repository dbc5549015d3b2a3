package event

import "kindred/domain/id"

// InteractionRecorded: a user saw something in the feed, or did something
// about it. It stands in a stream of the user and the item.
type InteractionRecorded struct {
	fact
	User       id.User `json:"user_id"`
	Item       string  `json:"item_id"`                 // usr_… or cam_…
	Kind       string  `json:"type"`                    // "impression", "click", "dismiss" or "conversion"
	Impression string  `json:"impression_id,omitempty"` // of the feed, where it is known
	Position   int     `json:"position,omitempty"`      // in the feed, from 1, where it is known
}

var interactionEvents = []definition{
	define[InteractionRecorded]("feed.interaction_recorded", 1),
}
