package httpapi_test

import (
	"encoding/json"
	"errors"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kindred/httpapi"
	"kindred/testkit"
)

func TestUsersAreWrittenAsTheContractSays(t *testing.T) {
	t.Parallel()
	at := httpapi.Time{Time: time.Date(2026, 1, 2, 3, 4, 5, 6_007, time.FixedZone("", 3600))}
	next := `more "to" come`
	var users []httpapi.User
	for _, external := range []string{"plain", "", `a "quoted" \ name`, "Zoë <b>&", "line\nbreak\u2028", strings.Repeat("x", 300)} {
		users = append(users, httpapi.User{
			ID: "usr_1", ExternalID: external, Traits: json.RawMessage(`{"a": [1, "é", {"b":null}]}`), CreatedAt: at, UpdatedAt: at,
		})
	}
	users = append(users, httpapi.User{})
	for _, list := range []httpapi.UserList{{Data: users, NextCursor: &next}, {Data: []httpapi.User{}}} {
		w := httptest.NewRecorder()
		if err := httpapi.UsersAnswer(list).VisitListUsersResponse(w); err != nil {
			t.Fatal(err)
		}
		sameJSON(t, list, w)
	}
	for _, u := range users {
		w := httptest.NewRecorder()
		if err := (httpapi.UserAnswer{User: u, ETag: `"7"`}).VisitGetUserResponse(w); err != nil {
			t.Fatal(err)
		}
		sameJSON(t, u, w)
		if w.Code != 200 || w.Header().Get("ETag") != `"7"` {
			t.Errorf("%d %v", w.Code, w.Header())
		}
	}
	for _, u := range users {
		created := httpapi.CreateUser201JSONResponse{
			Body: u, Headers: httpapi.CreateUser201ResponseHeaders{ETag: `"0"`, Location: "/api/v1/users/usr_1", XKindredPosition: "0a"},
		}
		want, got := httptest.NewRecorder(), httptest.NewRecorder()
		if err := errors.Join(created.VisitCreateUserResponse(want), httpapi.UserCreated(created).VisitCreateUserResponse(got)); err != nil {
			t.Fatal(err)
		}
		sameJSON(t, u, got)
		got.Header().Del("Content-Length") // the quick one knows it
		if diff := cmp.Diff(want.Header(), got.Header()); diff != "" || got.Code != want.Code {
			t.Errorf("%d, want %d (-want +got):\n%s", got.Code, want.Code, diff)
		}
	}
	// What is added to the contract has to be written, too.
	if n := reflect.TypeFor[httpapi.User]().NumField(); n != 5 {
		t.Errorf("a user has %d fields, and 5 are written", n)
	}
}

func sameJSON(t *testing.T, want any, got *httptest.ResponseRecorder) {
	t.Helper()
	var wanted, found any
	expected := testkit.Must(json.Marshal(want))(t)
	if err := json.Unmarshal(expected, &wanted); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(got.Body.Bytes(), &found); err != nil {
		t.Fatalf("%v: %s", err, got.Body)
	}
	if diff := cmp.Diff(wanted, found); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got.Code/100 != 2 || got.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%d %v", got.Code, got.Header())
	}
}
