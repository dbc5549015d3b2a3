// Package kindredtest plays kindred, for tests of programs that call it.
//
//	s := kindredtest.New(t)
//	s.Answer("POST", "/api/v1/users/ext:u1/matches", 200, map[string]any{"data": []any{}})
//	err := program(s.URL, s.APIKey)
//
// It keeps users in memory: they are made, put, changed, read, listed, imported
// and erased. Everything else answers what a test says, or 501. Deliveries of
// webhooks are made by kindred.Signed.
package kindredtest

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	kindred "kindred/sdk/go"
)

const longestBody = 16 << 20

// Server plays kindred.
type Server struct {
	URL      string
	APIKey   string // which any other would do as well as
	ClientID string

	mu       sync.Mutex
	users    map[string]*kindred.User // by external id
	order    []string                 // the external ids, as they came
	answers  map[string]answer        // by method and path
	repeated map[string]repeated      // by Idempotency-Key
	requests []Request
}

// Request is one that came.
type Request struct {
	Method, Path   string
	Query          string
	IdempotencyKey string
	Body           []byte
}

type answer struct {
	status int
	body   any // none where it is nil
}

// repeated is a request that has a key, and what it was answered.
type repeated struct {
	request string
	given   answer
}

// New serves until the test ends.
func New(t testing.TB) *Server {
	t.Helper()
	s := &Server{
		APIKey: "kin_test", ClientID: "cli_" + made(),
		users: map[string]*kindred.User{}, answers: map[string]answer{}, repeated: map[string]repeated{},
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.URL = server.URL
	return s
}

// Client makes a client that calls the server.
func (s *Server) Client() (*kindred.Client, error) {
	return kindred.New(kindred.Config{BaseURL: s.URL, APIKey: s.APIKey})
}

// Answer says what a request is answered from now on, users too.
func (s *Server) Answer(method, path string, status int, body any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[method+" "+path] = answer{status, body}
}

// Refuse says that a request is refused from now on.
func (s *Server) Refuse(method, path string, status int, code kindred.ProblemCode) {
	s.Answer(method, path, status, problem(status, code, "a test wants it so"))
}

// Requests are those that came, without those for tokens.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, longestBody))
	if err != nil {
		return // whoever asked has gone, or sends too much
	}
	path := r.URL.Path
	if path == "/auth/exchange" || path == "/auth/sessions/token" {
		write(w, answer{http.StatusOK, s.token(path == "/auth/exchange")})
		return
	}
	key := r.Header.Get("Idempotency-Key")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, Request{r.Method, path, r.URL.RawQuery, key, body})
	request := r.Method + " " + r.URL.RequestURI() + "\n" + string(body)
	if before, known := s.repeated[key]; known && before.request == request {
		write(w, before.given)
		return
	} else if known {
		write(w, refusal(http.StatusUnprocessableEntity, kindred.CodeIdempotencyKeyReused, "the key came with another request before"))
		return
	}
	given, known := s.answers[r.Method+" "+path]
	if !known {
		given = s.usersAnswer(r, body)
	}
	if key != "" && given.status < 300 {
		s.repeated[key] = repeated{request, given}
	}
	write(w, given)
}

func (s *Server) token(inData bool) any {
	token := map[string]any{
		"token":      "e30." + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"aud":%q}`, s.ClientID)) + ".c2ln",
		"expires_in": 900, "scopes": []string{"admin"},
	}
	if inData {
		return map[string]any{"data": token}
	}
	return token
}

func (s *Server) usersAnswer(r *http.Request, body []byte) answer {
	const users = "/api/v1/users"
	var in struct {
		ExternalID string         `json:"external_id"`
		Traits     kindred.Object `json:"traits"`
	}
	name, one := strings.CutPrefix(r.URL.EscapedPath(), users+"/") // where an id holds no slash
	if (r.Method == http.MethodPost && !one || r.Method == http.MethodPatch || r.Method == http.MethodPut) && json.Unmarshal(body, &in) != nil {
		return refusal(http.StatusBadRequest, kindred.CodeInvalidJson, "the body is no JSON")
	}
	switch method := r.Method; {
	case r.URL.Path == users && method == http.MethodGet:
		return s.page(r)
	case r.URL.Path == users && method == http.MethodPost:
		if in.ExternalID == "" {
			return refusal(http.StatusUnprocessableEntity, kindred.CodeInvalid, "the external_id is empty")
		}
		if s.users[in.ExternalID] != nil {
			return refusal(http.StatusConflict, kindred.CodeUserExists, "there is a user with this external_id")
		}
		return answer{http.StatusCreated, s.put(in.ExternalID, in.Traits)}
	case name == "import" && method == http.MethodPost && r.URL.Query().Get("async") != "true" && r.Header.Get("Content-Type") == "application/x-ndjson":
		return s.imported(body, r.URL.Query().Get("mode") == "replace")
	case !one || strings.Contains(name, "/"):
		return refusal(http.StatusNotImplemented, "not_played", fmt.Sprintf("say what is answered: Answer(%q, %q, …)", method, r.URL.Path))
	}
	external, user := s.find(r.URL.Path[len(users)+1:])
	switch {
	case user == nil && r.Method == http.MethodPut && external != "":
		return answer{http.StatusCreated, s.put(external, in.Traits)}
	case user == nil:
		return refusal(http.StatusNotFound, kindred.CodeUserUnknown, "there is no such user")
	case r.Method == http.MethodGet:
		return answer{http.StatusOK, *user}
	case r.Method == http.MethodPut && r.Header.Get("If-None-Match") != "":
		return refusal(http.StatusPreconditionFailed, kindred.CodeStale, "the user is there")
	case r.Method == http.MethodPut:
		return answer{http.StatusOK, s.put(user.ExternalID, in.Traits)}
	case r.Method == http.MethodPatch:
		return answer{http.StatusOK, s.put(user.ExternalID, merged(user.Traits, in.Traits))}
	case r.Method == http.MethodDelete:
		delete(s.users, user.ExternalID)
		s.order = slices.DeleteFunc(s.order, func(id string) bool { return id == user.ExternalID })
		return answer{status: http.StatusNoContent}
	default:
		return refusal(http.StatusMethodNotAllowed, kindred.CodeMethodNotAllowed, "this cannot be done with a user")
	}
}

// find finds a user by its id, or by `ext:` and its external id.
func (s *Server) find(name string) (external string, user *kindred.User) {
	external, is := strings.CutPrefix(name, "ext:")
	if is {
		return external, s.users[external]
	}
	for _, one := range s.users {
		if one.ID == name {
			return one.ExternalID, one
		}
	}
	return "", nil
}

func (s *Server) put(external string, traits map[string]any) kindred.User {
	if traits == nil {
		traits = map[string]any{}
	}
	user := s.users[external]
	now := time.Now().UTC().Truncate(time.Microsecond)
	if user == nil {
		user = &kindred.User{ID: "usr_" + made(), ExternalID: external, CreatedAt: now}
		s.users[external] = user
		s.order = append(s.order, external)
	}
	user.Traits, user.UpdatedAt = traits, now
	return *user
}

func (s *Server) imported(body []byte, replace bool) answer {
	result := kindred.ImportResult{Errors: []kindred.ImportError{}}
	lines := bufio.NewScanner(bytes.NewReader(body))
	lines.Buffer(nil, longestBody)
	for n := int64(1); lines.Scan(); n++ {
		var in kindred.NewUser
		if json.Unmarshal(lines.Bytes(), &in) != nil || in.ExternalID == "" {
			result.Failed++
			result.Errors = append(result.Errors, kindred.ImportError{Line: n, Code: kindred.CodeInvalid, Detail: "the line is no user"})
			continue
		}
		if before := s.users[in.ExternalID]; before == nil {
			result.Created++
		} else {
			result.Updated++
			if !replace {
				in.Traits = merged(before.Traits, in.Traits)
			}
		}
		s.put(in.ExternalID, in.Traits)
	}
	return answer{http.StatusOK, result}
}

func (s *Server) page(r *http.Request) answer {
	from, _ := strconv.Atoi(r.URL.Query().Get("cursor")) // the first page has none
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	until := min(len(s.order), from+cmp.Or(limit, 50))
	page := kindred.UserList{Data: []kindred.User{}}
	for _, external := range s.order[min(from, until):until] {
		page.Data = append(page.Data, *s.users[external])
	}
	if until < len(s.order) {
		page.NextCursor = kindred.Ptr(strconv.Itoa(until))
	}
	return answer{http.StatusOK, page}
}

// merged applies a change as a JSON merge patch does (RFC 7396).
func merged(before, change map[string]any) map[string]any {
	after := map[string]any{}
	maps.Copy(after, before)
	for name, value := range change {
		if within, is := value.(map[string]any); is {
			former, _ := after[name].(map[string]any) // what is no object is as if it were not there
			value = merged(former, within)
		}
		if after[name] = value; value == nil {
			delete(after, name)
		}
	}
	return after
}

func refusal(status int, code kindred.ProblemCode, detail string) answer {
	return answer{status, problem(status, code, detail)}
}

func problem(status int, code kindred.ProblemCode, detail string) map[string]any {
	return map[string]any{
		"type": "about:blank", "title": http.StatusText(status), "status": status, "detail": detail, "code": code, "request_id": "req_test",
	}
}

func write(w http.ResponseWriter, a answer) {
	kind := "application/json"
	if a.status >= 400 {
		kind = "application/problem+json"
	}
	w.Header().Set("X-Request-Id", "req_test")
	if a.body != nil {
		w.Header().Set("Content-Type", kind)
	}
	w.WriteHeader(a.status)
	if a.body != nil {
		_ = json.NewEncoder(w).Encode(a.body) // whoever has gone asks again
	}
}

func made() string { return strings.ToLower(rand.Text()) }
