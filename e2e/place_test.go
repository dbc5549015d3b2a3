package e2e

import (
	"crypto/rand"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kindred/app"
	"kindred/domain/id"
	"kindred/postgres/pgtest"
	"kindred/testkit"
)

func TestAToolMakesNoKindredWhereNothingWasServed(t *testing.T) {
	t.Parallel()
	client := string(id.Next[id.Client](id.Random(rand.Reader)))
	for _, args := range [][]string{
		{"projections", "list"},
		{"projections", "verify"},
		{"projections", "rebuild", "users"},
		{"projections", "skip", "dispatcher"},
		{"history", "list", "--client", client},
		{"history", "replay", "--into", "postgres://127.0.0.1:1/none"},
		{"keys", "list"},
		{"keys", "rewrap"},
		{"clients"},
	} {
		dir := filepath.Join(t.TempDir(), "nothing")
		if said, err := tool(t, app.Config{DataDir: dir}, args...); err == nil || !strings.Contains(err.Error(), "nothing was ever served from "+dir) || said != "" {
			t.Errorf("%v: %v, %q", args, err, said)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%v made something: %v", args, err)
		}
		empty := app.Config{DataDir: dir, DatabaseURL: pgtest.Empty(t)}
		if said, err := tool(t, empty, args...); err == nil || !strings.Contains(err.Error(), "it holds no kindred") || said != "" {
			t.Errorf("%v in an empty database: %v, %q", args, err, said)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%v beside an empty database made something: %v", args, err)
		}
	}
}

func TestClientsAreListed(t *testing.T) {
	t.Parallel()
	s := startService(t)
	a, b := s.signUp(), s.signUp()
	var listed []struct {
		ID, Slug  string
		CreatedAt time.Time `json:"created_at"`
	}
	testkit.Eventually(t, "both are listed", func() bool {
		said, err := tool(t, s.Config, "clients", "--json")
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(said), &listed); err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		return len(listed) == 2
	})
	want := []string{string(a.Client.ID), string(b.Client.ID)}
	slices.Sort(want)
	if got := []string{listed[0].ID, listed[1].ID}; !slices.Equal(got, want) || listed[0].Slug == "" || listed[0].CreatedAt.IsZero() {
		t.Errorf("%+v", listed)
	}
	said, err := tool(t, s.Config, "clients")
	if err != nil || strings.Count(said, "\n") != 3 || !strings.Contains(said, want[0]) {
		t.Errorf("%v\n%s", err, said)
	}
	for _, list := range [][]string{{"projections", "list", "--json"}, {"keys", "list", "--json"}} {
		var items []map[string]any
		said, err := tool(t, s.Config, list...)
		if err != nil || json.Unmarshal([]byte(said), &items) != nil || len(items) < 2 {
			t.Errorf("%v: %v\n%s", list, err, said)
		}
	}
}

func TestWhatIsWrongOnACommandLineIsNamed(t *testing.T) {
	t.Parallel()
	if _, err := tool(t, app.Config{}, "projections", "rebuild", "nope"); err == nil || !strings.Contains(err.Error(), `"nope" is no read model; there are clients, api_keys, sessions, users`) {
		t.Errorf("%v", err)
	}
	for line, want := range map[string]string{
		"users import":                       "usage: kindred users import FILE",
		"events now":                         "usage: kindred events",
		"users import people.x":              "people.x: no such file",
		"users import . --format csv":        ". is a directory",
		"listen":                             `required flag(s) "forward-to" not set; kindred listen --help shows how`,
		"history export":                     `required flag(s) "client" not set; kindred history export --help shows how`,
		"whoami --josn":                      "unknown flag: --josn; kindred whoami --help shows how",
		"users import people.x --format xml": `--format is csv or ndjson, not "xml"`,
	} {
		if _, err := tool(t, app.Config{}, strings.Fields(line)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", line, err)
		}
	}
	for _, group := range []string{"users", "segments", "sandboxes", "projections", "history", "keys"} {
		want := group + ` has no command "nonsense"; kindred help ` + group + " lists them"
		if said, err := tool(t, app.Config{}, group, "nonsense"); err == nil || err.Error() != want || said != "" {
			t.Errorf("%v\n%s", err, said)
		}
		if said, err := tool(t, app.Config{}, group); err != nil || !strings.Contains(said, "Available Commands:") {
			t.Errorf("%v\n%s", err, said)
		}
	}
}
