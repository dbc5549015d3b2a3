package event

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"time"

	"kindred/domain/id"
)

// Message is the public form of an event, whoever is told and however: exactly the
// three fields of the contract (docs/contract.md#delivery).
type Message struct {
	EventType string `json:"event_type"`
	Data      any    `json:"data"`
	Timestamp string `json:"timestamp"`
}

// MessageTime is the layout of a message's timestamp, which is in UTC.
const MessageTime = "2006-01-02T15:04:05.000000Z"

// MessageOf is the message of an event of a type that was recorded at a time.
func MessageOf(p Public, eventType string, client id.Client, at time.Time) Message {
	return Message{eventType, p.Data(client), at.UTC().Format(MessageTime)}
}

// Body is the message of an event as the bytes that receivers are sent.
func Body(p Public, eventType string, client id.Client, at time.Time) ([]byte, error) {
	text, err := json.Marshal(MessageOf(p, eventType, client, at))
	if err != nil {
		return nil, fmt.Errorf("write the body of %s: %w", eventType, err)
	}
	return text, nil
}

// userNames finds the users that a body names. A quote inside of a JSON string
// is escaped, so nothing that a client wrote can look like this.
var userNames = regexp.MustCompile(`"(user_id|matched_user_id)":"(usr_[0-9a-v]{26})"`)

// UsersOf lists the users that a body names.
func UsersOf(body []byte) []id.User {
	var users []id.User
	for _, found := range userNames.FindAllSubmatch(body, -1) {
		users = append(users, id.User(found[2]))
	}
	return users
}

// ErrUnnamed says that a user was created of whom it is not known how the client names it.
var ErrUnnamed = errors.New("how the client names a user is not known")

// NameUsers returns a body with its users named as their client does; whole is
// false where one of them has no name, and stays named by its id.
func NameUsers(body []byte, names map[id.User]string) (named []byte, whole bool) {
	whole = true
	named = userNames.ReplaceAllFunc(body, func(pair []byte) []byte {
		found := userNames.FindSubmatch(pair)
		name, there := names[id.User(found[2])]
		quoted, err := json.Marshal(name)
		if !there || err != nil {
			whole = false
			return pair
		}
		return append([]byte(`"`+string(found[1])+`":`), quoted...)
	})
	return named, whole
}
