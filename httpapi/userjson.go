package httpapi

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// UserAnswer answers with one user, as GetUser200JSONResponse does, without
// reading the traits once more to write them down.
type UserAnswer struct {
	User User
	ETag string
}

// VisitGetUserResponse answers a request for a user.
func (a UserAnswer) VisitGetUserResponse(w http.ResponseWriter) error {
	w.Header().Set("ETag", a.ETag)
	return answerUser(w, http.StatusOK, a.User)
}

// UserCreated is UserAnswer for a user who was just created.
type UserCreated CreateUser201JSONResponse

// VisitCreateUserResponse answers a request to create a user.
func (a UserCreated) VisitCreateUserResponse(w http.ResponseWriter) error {
	header := w.Header()
	header.Set("ETag", a.Headers.ETag)
	header.Set("Location", a.Headers.Location)
	header.Set("X-Kindred-Position", a.Headers.XKindredPosition)
	return answerUser(w, http.StatusCreated, a.Body)
}

// UserPut is UserAnswer for a user who was made, where Location says so, or changed.
type UserPut struct {
	UserAnswer
	Location, Position string
}

// VisitPutUserResponse answers a request to make or change a user.
func (a UserPut) VisitPutUserResponse(w http.ResponseWriter) error {
	header, status := w.Header(), http.StatusOK
	header.Set("ETag", a.ETag)
	header.Set("X-Kindred-Position", a.Position)
	if a.Location != "" {
		header.Set("Location", a.Location)
		status = http.StatusCreated
	}
	return answerUser(w, status, a.User)
}

func answerUser(w http.ResponseWriter, status int, u User) error {
	return answerJSON(w, status, appendUser(make([]byte, 0, userSize(u)+1), u))
}

// UsersAnswer is UserAnswer for a page of users.
type UsersAnswer UserList

// VisitListUsersResponse answers a request for users.
func (a UsersAnswer) VisitListUsersResponse(w http.ResponseWriter) error {
	size := 256
	for _, u := range a.Data {
		size += userSize(u) + 1
	}
	b := append(make([]byte, 0, size), `{"data":[`...)
	for i, u := range a.Data {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendUser(b, u)
	}
	b = append(b, `],"next_cursor":`...)
	if a.NextCursor == nil {
		b = append(b, `null`...)
	} else {
		b = appendString(b, *a.NextCursor)
	}
	return answerJSON(w, http.StatusOK, append(b, '}'))
}

func answerJSON(w http.ResponseWriter, status int, body []byte) error {
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(body)+1))
	w.WriteHeader(status)
	_, err := w.Write(append(body, '\n'))
	return err
}

// userSize is about how many bytes a user takes.
func userSize(u User) int { return 160 + len(u.ExternalID) + len(u.ID) + len(u.Traits) }

func appendUser(b []byte, u User) []byte {
	b = append(b, `{"created_at":`...)
	b = u.CreatedAt.append(b)
	b = append(b, `,"external_id":`...)
	b = appendString(b, u.ExternalID)
	b = append(b, `,"id":`...)
	b = appendString(b, string(u.ID))
	if u.Traits != nil {
		b = append(b, `,"traits":`...)
		b = append(b, u.Traits...)
	}
	b = append(b, `,"updated_at":`...)
	b = u.UpdatedAt.append(b)
	return append(b, '}')
}

// appendString writes text as a JSON string.
func appendString(b []byte, text string) []byte {
	for _, c := range []byte(text) {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, err := json.Marshal(text)
			if err != nil {
				panic(err) // no string fails
			}
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, text...)
	return append(b, '"')
}
