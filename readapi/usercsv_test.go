package readapi

import (
	"encoding/json"
	"slices"
	"strconv"
	"testing"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/httpapi"
	"kindred/projections"
	"kindred/projections/projectionstest"
)

// Who goes on writing while all users are read gets them all the same, also where the read model falls behind.
func TestUsersAreReadToTheEndWhileMoreAreWritten(t *testing.T) {
	t.Parallel()
	const client = id.Client("cli_a")
	w := projectionstest.New(t)
	stop := w.Follow(projections.Users{})
	for i := range usersWritten + 1 {
		w.Create(client, "user-"+strconv.Itoa(i), `{}`)
	}
	api := &API{Reader: w.Reader, Users: w.Users(), Cursors: httpapi.Cursors{Key: make([]byte, 32)}}
	ctx, read := httpapi.With(t.Context(), httpapi.Principal{Client: client}, httpapi.Call{}), 0
	err := api.eachUser(ctx, httpapi.ListUsersParams{}, func(projections.User, map[string]json.RawMessage) error {
		if read++; read == 1 {
			stop()
			w.Create(client, "late", `{}`)
		}
		return nil
	})
	if err != nil || read != usersWritten+1 {
		t.Errorf("%d users, and %v", read, err)
	}
}

func TestATraitThatComesWhileUsersAreWrittenIsNoFailure(t *testing.T) {
	record, index := []string{"u1", "of another"}, map[string]int{"age": 1}
	err := fill(record, index, map[string]json.RawMessage{"age": json.RawMessage(`4`), "plan": json.RawMessage(`"pro"`)})
	if f := fault.As(err); f == nil || f.Code != "busy" || f.RetryAfter == 0 {
		t.Errorf("got %v", err)
	}
	if err := fill(record, index, nil); err != nil || !slices.Equal(record, []string{"u1", ""}) {
		t.Errorf("got %q, %v", record, err)
	}
}
