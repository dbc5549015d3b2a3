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

// Key: an impression is seen, clicked and converted once; an item is dismissed
// once.
func (e InteractionRecorded) Key() (key id.Event, ok bool) {
	impression := e.Impression
	if e.Kind == "dismiss" {
		impression = ""
	} else if impression == "" {
		return "", false
	}
	return id.Next[id.Event](id.Derived("interaction", string(e.User), e.Item, e.Kind, impression)), true
}

var interactionEvents = []definition{
	define[InteractionRecorded]("feed.interaction_recorded", 1),
}
