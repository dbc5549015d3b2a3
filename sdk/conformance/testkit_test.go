package conformance

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
)

func TestTheServersOfTheTestKitsPlayTheSame(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		ok, failed := d.try(command{"do": "fake"})
		if failed != nil {
			t.Fatal(failed)
		}
		d.client("c", field[string](t, ok, "url"), command{"api_key": field[string](t, ok, "api_key")})
		if is, failed := d.try(command{"do": "client_id", "client": "c"}); failed != nil || text(t, is) != field[string](t, ok, "client_id") {
			t.Errorf("the client is %s (%v)", is, failed)
		}
		named := command{"path": []string{"ext:a/b ü"}}
		with := func(traits command) command {
			return command{"path": named["path"], "body": command{"traits": traits}}
		}
		make1 := command{"body": command{"external_id": "a/b ü", "traits": command{"plan": "pro", "age": 3}}, "options": command{"idempotency_key": "one"}}
		made := d.must("c", "users.create", make1)
		id := field[string](t, made.Value, "id")
		if again := d.must("c", "users.create", make1); field[string](t, again.Value, "id") != id {
			t.Error("a repeated POST has made another user")
		}
		another := command{"body": command{"external_id": "c"}, "options": make1["options"]}
		if f := d.fails("refused", "c", "users.create", another); f.Status != 422 || f.Code != "idempotency_key_reused" {
			t.Errorf("another user under the same key is refused as %+v", f)
		}
		if f := d.fails("refused", "c", "users.create", command{"body": command{"external_id": ""}}); f.Status != 422 || f.Code != "invalid" {
			t.Errorf("a user without a name is refused as %+v", f)
		}
		make1["options"] = command{}
		if f := d.fails("refused", "c", "users.create", make1); f.Status != 409 || f.Code != "user_exists" || f.RequestID == "" {
			t.Errorf("a user who is there is refused as %+v", f)
		}
		changed := d.must("c", "users.change", with(command{"plan": nil, "city": "Zürich"}))
		if traits := field[map[string]any](t, changed.Value, "traits"); len(traits) != 2 || traits["age"] != 3.0 || traits["city"] != "Zürich" {
			t.Errorf("the traits are %v", traits)
		}
		d.must("c", "users.change", with(command{"at": command{"home": command{"city": "Bern", "zip": "3000"}, "work": 1}}))
		within := d.must("c", "users.change", with(command{"at": command{"home": command{"zip": nil}, "work": command{"floor": 2, "door": nil}}}))
		if at := fmt.Sprint(field[map[string]any](t, within.Value, "traits", "at")); at != "map[home:map[city:Bern] work:map[floor:2]]" {
			t.Errorf("what is within a trait is changed to %s", at)
		}
		put := d.must("c", "users.put", with(command{"x": 1}))
		if traits := field[map[string]any](t, put.Value, "traits"); len(traits) != 1 || field[string](t, put.Value, "id") != id {
			t.Errorf("put %s", put.Value)
		}
		onlyNew := with(command{"x": 2})
		onlyNew["options"] = command{"if_none_match": "*"}
		if f := d.fails("refused", "c", "users.put", onlyNew); f.Status != 412 || f.Code != "stale" {
			t.Errorf("a user who is there already is refused as %+v", f)
		}
		if got := d.must("c", "users.get", command{"path": []string{id}}); field[string](t, got.Value, "external_id") != "a/b ü" {
			t.Errorf("got %s", got.Value)
		}
		imported := d.must("c", "users.import", command{"users": 119})
		if field[int](t, imported.Value, "created") != 119 {
			t.Errorf("imported %s", imported.Value)
		}
		merged := d.must("c", "users.import", command{"lines": "{\"external_id\":\"u000001\",\"traits\":{\"plan\":null}}\n[]\n{\"external_id\":\"\"}\n"})
		if field[int](t, merged.Value, "updated") != 1 || field[int](t, merged.Value, "failed") != 2 {
			t.Errorf("imported %s", merged.Value)
		}
		if list := d.must("c", "users.list", command{}); list.Count != 120 {
			t.Errorf("%d users are listed", list.Count)
		}
		d.must("c", "users.erase", named)
		if f := d.fails("refused", "c", "users.get", named); f.Status != 404 || f.Code != "user_unknown" {
			t.Errorf("an erased user is refused as %+v", f)
		}
		computing := command{"path": []string{"ext:u1"}, "body": command{"limit": 1}}
		if f := d.fails("refused", "c", "matches.compute", computing); f.Status != 501 || f.Code != "not_played" {
			t.Errorf("what is not played is refused as %+v", f)
		}
		for _, c := range []command{
			{"do": "fake_answer", "method": "POST", "path": []string{"/api/v1/users/ext:u1/matches"}, "body": json.RawMessage(`{"data":[]}`)},
			{"do": "fake_refuse", "method": "GET", "path": []string{"/api/v1/segments"}},
		} {
			if _, failed := d.try(c); failed != nil {
				t.Fatal(failed)
			}
		}
		d.must("c", "matches.compute", computing)
		if f := d.fails("refused", "c", "segments.list", command{}); f.Code != "a_code" || f.Status != 409 {
			t.Errorf("a refusal is told as %+v", f)
		}
		ok, failed = d.try(command{"do": "fake_requests"})
		var requests []string
		if failed != nil || json.Unmarshal(ok, &requests) != nil || len(requests) != 21 || requests[0] != "POST /api/v1/users" ||
			!slices.Contains(requests, "PUT /api/v1/users/ext:a/b ü") {
			t.Errorf("%d requests came: %q (%v)", len(requests), requests, failed)
		}
	})
}
