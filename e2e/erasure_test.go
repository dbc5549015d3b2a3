package e2e

import (
	"bytes"
	"crypto/md5"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"kindred/app"
	"kindred/httpapi"
	"kindred/testkit"
)

// traces are the forms in which a word may have been kept: as it is, hashed
// without a key, and each of them in hex and base64.
func traces(words ...string) map[string][]byte {
	found := map[string][]byte{}
	for _, word := range words {
		plain := []byte(word)
		hashed256, hashed1, hashed5 := sha256.Sum256(plain), sha1.Sum(plain), md5.Sum(plain)
		for form, raw := range map[string][]byte{"plain": plain, "SHA-256": hashed256[:], "SHA-1": hashed1[:], "MD5": hashed5[:]} {
			name := form + " of " + word
			found[name] = raw
			found["hex "+name] = []byte(hex.EncodeToString(raw))
			found["HEX "+name] = []byte(strings.ToUpper(hex.EncodeToString(raw)))
			for shift := range 3 { // wherever it begins within what was encoded
				padded := append(make([]byte, shift), raw...)
				for kind, encoding := range map[string]*base64.Encoding{"base64 ": base64.RawStdEncoding, "base64url ": base64.RawURLEncoding} {
					encoded := encoding.EncodeToString(padded)
					first, last := (shift*8+5)/6, len(padded)*8/6
					found[kind+name+"+"+string(rune('0'+shift))] = []byte(encoded[first:last])
				}
			}
		}
	}
	return found
}

// TestNothingReadableStaysOfAnErasedUser looks through every file of the
// database, every row and the export of the client.
func TestNothingReadableStaysOfAnErasedUser(t *testing.T) {
	t.Parallel()
	s := startService(t, impatient)
	a := s.signUp()
	inbox := receive(t, http.StatusNoContent)
	a.subscribe(inbox.URL, "a webhook secret", "match.computed")
	// Another is told the client's own ids, repeats them, and fails at first.
	var told, names atomic.Int64
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("receive: %v", err)
		}
		names.Add(int64(bytes.Count(body, []byte("zaphod-"))))
		if told.Add(1) == 1 {
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = w.Write(body)
	}))
	t.Cleanup(echo.Close)
	want[httpapi.ClientDetails](t, http.StatusOK, a.sendTo("PATCH", "", `{"settings":{"webhook_user_ids":"external_id","automatic_matching":{"on":true,"k":3,"min_score":0}}}`))
	a.subscribe(echo.URL, "another secret", "match.computed")
	external, city, hobby := "zaphod-"+rand.Text(), "betelgeuse-"+rand.Text(), "gargle-"+rand.Text()
	// Of two groups of users who have a number each, this one is in the middle of
	// all, and at the edge of one. By itself such a number is an identifier.
	want[httpapi.TraitSchema](t, http.StatusOK, a.send("PATCH", "/api/v1/traits", `{"traits":{"phone":{"type":"number"}}}`))
	const number = 8_999_238_217
	var lines strings.Builder
	for i := range 20 {
		fmt.Fprintf(&lines, `{"external_id":"low%d","traits":{"plan":"free","phone":%d}}`+"\n", i, 1_000_000_007+i*12_345_679)
		fmt.Fprintf(&lines, `{"external_id":"high%d","traits":{"plan":"pro","phone":%d}}`+"\n", i, 9_000_000_007+i*12_345_679)
	}
	want[map[string]any](t, http.StatusOK, a.send("POST", "/api/v1/users/import", strings.NewReader(lines.String()), header("Content-Type", "application/x-ndjson")))
	words := []string{external, city, hobby, fmt.Sprint(number)}
	a.createUser("companion", map[string]any{"city": city, "age": 42})
	a.createUser("control-"+hobby[7:15], map[string]any{"age": 41})
	create := map[string]any{"external_id": external, "traits": map[string]any{"city": city, "age": 42, "plan": "pro", "phone": number}}
	path := "/api/v1/users/ext:" + external
	want[map[string]any](t, http.StatusCreated, a.send("POST", "/api/v1/users", create, idempotent("key of "+rand.Text())))
	want[map[string]any](t, http.StatusOK, a.send("PATCH", path, map[string]any{"traits": map[string]any{"hobby": hobby}}))
	want[map[string]any](t, http.StatusOK, a.send("POST", "/api/v1/users/import",
		strings.NewReader(`{"external_id":"`+external+`","traits":{"hobby":"`+hobby+`","plan":"pro","phone":`+fmt.Sprint(number)+`,"more":1}}`), header("Content-Type", "application/x-ndjson")))
	for _, of := range []string{path, "/api/v1/users/ext:companion"} {
		if got := a.send("POST", of+"/matches", map[string]any{}, idempotent(rand.Text())); got.Status >= 300 {
			t.Fatalf("%d %s", got.Status, got.Body)
		}
		want[map[string]any](t, http.StatusOK, a.get(of+"/feed?limit=5"))
	}
	layer := a.createLayer("phone", "plan")
	a.grantAll(layer)
	if run := a.ended(a.cluster(layer, "k", 2)); run.Status != "completed" {
		t.Fatalf("%+v", run)
	}
	clusters := a.get("/api/v1/clusters?consent_layer_id=" + string(layer.ID)).Body
	if !bytes.Contains(clusters, []byte(`"path":"phone"`)) {
		t.Fatalf("the number sets no cluster apart: %s", clusters)
	}
	before := a.export()
	f := openApp(t, s.Config)
	testkit.Eventually(t, "the matches are delivered", func() bool {
		var delivered int
		err := f.Pool.QueryRow(t.Context(), `SELECT count(*) FROM dispatch_deliveries WHERE state = 'delivered'`).Scan(&delivered)
		return err == nil && delivered >= 4 && names.Load() >= 2
	})
	// The words are such that they would be found.
	if open := a.export(); len(look(open, traces(words...))) != 0 {
		t.Error("an export that opens nothing holds personal data")
	}
	if page := a.get(a.under("/history?personal=open&limit=200")).Body; len(look(page, traces(words...))) < len(words) {
		t.Fatal("the search does not find what is there")
	}

	// The companion shares the city, and keeps it; only sealed.
	wantDone(t, a.send("DELETE", path, nil))
	caughtUp(t, f)
	jwks := s.send("GET", "/.well-known/audit-jwks.json", nil).Body
	after := a.export()
	if found := findings(t, jwks, after, lastHead(t, before)); len(found) > 0 {
		t.Errorf("after the erasure: %q", found)
	}
	forms := traces(words...)
	for what, bytes := range map[string][]byte{"the export": after, "the clusters": clusters, "the history, opened": a.get(a.under("/history?personal=open&limit=200&stream=" + streamOf(t, a))).Body} {
		if leaked := look(bytes, forms); len(leaked) > 0 {
			t.Errorf("%s holds %q", what, leaked)
		}
	}
	s.stop()
	checkRebuilt(t, f)
	control := "control-" + rand.Text()
	if _, err := f.Pool.Exec(t.Context(), `CREATE TABLE control AS SELECT upper(encode($1, 'hex')) AS word`, []byte(control)); err != nil {
		t.Fatal(err)
	}
	if len(lookInto(t, f, traces(control))) != 2 {
		t.Error("the search does not find what is there, in a row and in a file")
	}
	for _, leaked := range lookInto(t, f, forms) {
		t.Errorf("the database holds %s", leaked)
	}
}

// streamOf is the stream of the client's user that was erased.
func streamOf(t *testing.T, a account) string {
	t.Helper()
	page := want[struct {
		Data []struct{ Stream string }
	}](t, http.StatusOK, a.get(a.under("/history?type=end_user.erased")))
	if len(page.Data) != 1 {
		t.Fatalf("%d erasures", len(page.Data))
	}
	return page.Data[0].Stream
}

func look(in []byte, forms map[string][]byte) (found []string) {
	for name, form := range forms {
		if bytes.Contains(in, form) {
			found = append(found, name)
		}
	}
	return found
}

// lookInto searches the rows of all tables, and, after they were vacuumed, the
// files of all tables and indexes.
func lookInto(t *testing.T, f *app.App, forms map[string][]byte) (found []string) {
	t.Helper()
	for _, sql := range []string{`VACUUM`, `CHECKPOINT`} {
		if _, err := f.Pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := f.Pool.Query(t.Context(), `
SELECT c.oid::regclass::text, c.relkind = 'r' AND n.nspname NOT IN ('pg_catalog', 'information_schema'), coalesce(pg_read_binary_file(pg_relation_filepath(c.oid)), '')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'i', 't')`)
	if err != nil {
		t.Fatal(err)
	}
	var (
		name   string
		table  bool
		raw    []byte
		tables []string
	)
	if _, err := pgx.ForEachRow(rows, []any{&name, &table, &raw}, func() error {
		for _, leaked := range look(raw, forms) {
			found = append(found, leaked+" in the file of "+name)
		}
		if table {
			tables = append(tables, name)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(tables) < 20 {
		t.Fatalf("only %d tables were found", len(tables))
	}
	for _, table := range tables { // values that are compressed in the file
		var copied bytes.Buffer
		conn, err := f.Pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = conn.Conn().PgConn().CopyTo(t.Context(), &copied, `COPY `+table+` TO STDOUT (FORMAT binary)`)
		conn.Release()
		if err != nil {
			t.Fatal(err)
		}
		for _, leaked := range look(copied.Bytes(), forms) {
			found = append(found, leaked+" in a row of "+table)
		}
	}
	return found
}

func TestWhoWasErasedElsewhereIsNotOpened(t *testing.T) {
	t.Parallel()
	first := keepContract(t)
	a := first.signUp()
	b := a.at(keepContract(t, replicaOf(first)))
	for n := range 5 {
		word := fmt.Sprintf("a word of nobody else %d", n)
		user := a.createUser(fmt.Sprint("person ", n), map[string]any{"word": word})
		history := a.under("/history?personal=open&limit=200")
		if page := b.get(history); !bytes.Contains(page.Body, []byte(word)) {
			t.Fatalf("the traits are not opened: %d %.2000s", page.Status, page.Body)
		}
		wantDone(t, a.send("DELETE", "/api/v1/users/"+string(user.ID), nil))
		for what, page := range map[string]answer{
			"a page":     b.get(history),
			"an export":  b.get(a.under("/history?personal=open"), header("Accept", "application/x-ndjson")),
			"a timeline": b.get("/api/v1/users/" + string(user.ID) + "/timeline"),
		} {
			if page.Status != http.StatusOK || bytes.Contains(page.Body, []byte(word)) || bytes.Contains(page.Body, []byte("changed_traits")) {
				t.Errorf("%s of another replica: %d %.2000s", what, page.Status, page.Body)
			}
		}
	}
}
