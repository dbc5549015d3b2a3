package httpapi

import (
	"fmt"
	"strconv"
	"strings"

	"kindred/domain/fault"
	"kindred/domain/id"
)

// Showing is an item at its place in a feed. Its signed form is the impression
// id that callers get, so that nothing of what was shown has to be kept.
type Showing struct {
	Feed     string // names the ranking
	Position int    // from 1
	Item     string
}

// EncodeShowing makes the impression id of a showing to a user.
func (c Cursors) EncodeShowing(client id.Client, user id.User, s Showing) string {
	return c.Encode(client, showings(user), fmt.Sprintf("%d/%s/%s", s.Position, s.Feed, s.Item))
}

// DecodeShowing returns what an impression id stands for. It refuses, with a
// fault of kind Missing, what EncodeShowing did not make for this user.
// Faults: bad_cursor, impression_unknown.
func (c Cursors) DecodeShowing(client id.Client, user id.User, impression string) (Showing, error) {
	written, err := c.Decode(client, showings(user), impression)
	if err == nil {
		position, rest, _ := strings.Cut(written, "/")
		feed, item, _ := strings.Cut(rest, "/")
		if at, err := strconv.Atoi(position); err == nil {
			return Showing{Feed: feed, Position: at, Item: item}, nil
		}
	}
	return Showing{}, fault.New(fault.Missing, "impression_unknown", "There is no such impression in this user's feed.")
}

func showings(user id.User) string { return "showings of " + string(user) }
