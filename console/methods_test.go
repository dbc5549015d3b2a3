package console

import (
	"testing"
)

func TestCallsAreShownAsTheSDKsMakeThem(t *testing.T) {
	for call, want := range map[Call][2]string{
		{Method: "GET", Path: `/api/v1/users?filter=traits.plan+%3D%3D+%22pro%22+%26%26+traits.age+%3E+30&limit=50`}: {
			`await kindred.users.listPage({ filter: "traits.plan == \"pro\" && traits.age > 30", limit: 50 })`,
			`kindred.users.list_page(filter="traits.plan == \"pro\" && traits.age > 30", limit=50)`,
		},
		{Method: "GET", Path: "/api/v1/users/ext:a%2Fb"}: {`await kindred.users.get("ext:a/b")`, `kindred.users.get("ext:a/b")`},
		{Method: "GET", Path: "/api/v1/clients/cli_0"}:   {`await kindred.client.get()`, `kindred.client.get()`},
		{Method: "GET", Path: "/api/v1/users?ids=usr_1,usr_2"}: {
			`await kindred.users.listPage({ ids: ["usr_1", "usr_2"] })`, `kindred.users.list_page(ids=["usr_1", "usr_2"])`,
		},
		{Method: "POST", Path: "/api/v1/users"}: {`await kindred.users.create(body)`, `kindred.users.create(body)`},
		{Method: "GET", Path: "/api/v1/users/usr_0/feed?record=false"}: {
			`await kindred.feed.getPage("usr_0", { record: false })`, `kindred.feed.get_page("usr_0", record=False)`,
		},
		{Method: "DELETE", Path: "/api/v1/nothing"}: {"", ""},
	} {
		if got := [2]string{call.TypeScript(), call.Python()}; got != want {
			t.Errorf("%s %s:\n%s\n%s\nnot\n%s\n%s", call.Method, call.Path, got[0], got[1], want[0], want[1])
		}
	}
}
