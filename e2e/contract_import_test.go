package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kindred/domain/id"
	"kindred/httpapi"
	"kindred/testkit"
)

var ndjson = header("Content-Type", "application/x-ndjson")

func TestImports(t *testing.T) {
	t.Parallel()
	s := sharedContract(t)
	run := func(t *testing.T, a account, query string, body any) httpapi.ImportResult {
		t.Helper()
		return want[httpapi.ImportResult](t, http.StatusOK, a.send("POST", "/api/v1/users/import"+query, body, ndjson))
	}
	traits := func(t *testing.T, a account, external string) json.RawMessage {
		t.Helper()
		return want[httpapi.User](t, http.StatusOK, a.get("/api/v1/users/ext:"+external)).Traits
	}

	t.Run("CSV is read as lines are, at once and behind", func(t *testing.T) {
		const file = "\ufeffexternal_id,plan,age,likes\r\nann,pro,31,\"[\"\"jazz\"\"]\"\r\nbob,\"a\r\nb\",,\r\n\"cat,1\r\n,pro,7,\r\ndan,free,null,x\r\n"
		for _, query := range []string{"", "?async=true"} {
			a := s.signUp()
			answered := a.send("POST", "/api/v1/users/import"+query, file, header("Content-Type", "text/csv; charset=utf-8"))
			var refused []httpapi.ImportError
			if query == "" {
				got := want[httpapi.ImportResult](t, http.StatusOK, answered)
				if refused = got.Errors; got.Created != 3 || got.Failed != 2 {
					t.Errorf("%+v", got)
				}
			} else {
				began := want[httpapi.Import](t, http.StatusAccepted, answered)
				testkit.Eventually(t, "the import ends", func() bool {
					got := want[httpapi.Import](t, http.StatusOK, a.get("/api/v1/users/imports/"+string(began.ID)))
					refused = got.Errors
					return got.EndedAt != nil
				})
			}
			if len(refused) != 2 || refused[0].Line != 5 || refused[0].Code != "invalid_csv" || !strings.Contains(refused[0].Detail, "line 5, column") ||
				refused[1].Line != 6 || refused[1].Code != "invalid" || refused[1].Errors[0].Pointer != "/external_id" {
				t.Errorf("%q: refused are %+v", query, refused)
			}
			wantJSON(t, `{"plan":"pro","age":31,"likes":["jazz"]}`, traits(t, a, "ann"))
			wantJSON(t, `{"plan":"a\nb"}`, traits(t, a, "bob"))
			wantJSON(t, `{"plan":"free","likes":"x"}`, traits(t, a, "dan")) // a null that is merged leaves nothing
			wantProblem(t, http.StatusBadRequest, "invalid_csv", a.send("POST", "/api/v1/users/import"+query, "name,plan\nu,pro\n", header("Content-Type", "text/csv")))
		}
	})

	t.Run("lines create, merge and replace", func(t *testing.T) {
		a := s.signUp()
		got := a.send("POST", "/api/v1/users/import", "\ufeff"+`{"external_id":"ann","traits":{"a":1,"b":2}}`+"\r\n\n  \n"+`{"external_id":"bob"}`, ndjson)
		wantShape(t, got.Body, "created number", "updated number", "failed number", "errors[]")
		if got.Header.Get("X-Kindred-Position") == "" {
			t.Error("no position")
		}
		if diff := cmp.Diff(httpapi.ImportResult{Created: 2, Errors: []httpapi.ImportError{}}, want[httpapi.ImportResult](t, http.StatusOK, got)); diff != "" {
			t.Error(diff)
		}
		again := run(t, a, "?mode=merge", `{"external_id":"ann","traits":{"b":null,"c":3}}`+"\n"+`{"external_id":"ann","traits":{"d":4}}`+"\n")
		if again.Updated != 2 {
			t.Errorf("%+v", again)
		}
		wantJSON(t, `{"a":1,"c":3,"d":4}`, traits(t, a, "ann"))
		run(t, a, "?mode=replace", `{"external_id":"ann","traits":{"only":true}}`)
		wantJSON(t, `{"only":true}`, traits(t, a, "ann"))
		if same := run(t, a, "?mode=replace", `{"external_id":"ann","traits":{"only":true}}`); same.Updated != 1 || same.Created != 0 {
			t.Errorf("%+v", same)
		}
		wantDone(t, a.send("DELETE", "/api/v1/users/ext:ann", nil))
		if back := run(t, a, "", `{"external_id":"ann","traits":{"back":1}}`); back.Created != 1 {
			t.Errorf("after an erasure: %+v", back)
		}
		wantJSON(t, `{"back":1}`, traits(t, a, "ann"))
		if none := run(t, a, "", ""); none.Created+none.Updated+none.Failed != 0 {
			t.Errorf("of nothing: %+v", none)
		}
	})

	t.Run("a refused line does not stop the rest, and is named", func(t *testing.T) {
		a := s.signUp()
		lines := []string{
			`{"external_id":"good-1"}`,
			`{"external_id":""}`,
			`not json`,
			`{"external_id":"x","traits":{"private-value":"keep me out"},"unknown":1}`,
			`{"traits":{}}`,
			`{"external_id":7}`,
			`{"external_id":"x","traits":[]}`,
			`[]`,
			`null`,
			`{"external_id":"nul` + `\u0000` + `"}`,
			"{\"external_id\":\"bad \xff utf8\"}",
			`{"external_id":"x","external_id":"y"}`,
			`{"External_ID":"wrong case"}`,
			`{"external_id":"` + strings.Repeat("x", 257) + `"}`,
			`{"external_id":"deep","traits":{"d":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}}`,
			`{"external_id":"large","traits":{"d":"` + strings.Repeat("x", 257<<10) + `"}}`,
			`{"external_id":"long","traits":{"d":"` + strings.Repeat("x", 2<<20) + `"}}`,
			`{"external_id":"two"} {"external_id":"on one line"}`,
			`{"external_id":"good-2"}`,
		}
		s.Logs.keepOut("keep me out", "wrong case", "on one line")
		result := run(t, a, "", strings.Join(lines, "\n"))
		if result.Created != 2 || result.Failed != int64(len(lines)-2) || len(result.Errors) != len(lines)-2 {
			t.Errorf("%+v", result)
		}
		for i, e := range result.Errors {
			if e.Line != int64(i+2) || e.Code == "" || e.Detail == "" {
				t.Errorf("%+v", e)
			}
		}
		for _, external := range []string{"good-1", "good-2"} {
			traits(t, a, external)
		}
		unknown := result.Errors[2]
		if len(unknown.Errors) != 1 || unknown.Errors[0].Pointer != "/unknown" {
			t.Errorf("the unknown field is not named: %+v", unknown)
		}
	})

	t.Run("the first 1,000 refused lines are named", func(t *testing.T) {
		a := s.signUp()
		result := run(t, a, "", strings.Repeat("x\n", 1500)+`{"external_id":"last"}`)
		if result.Failed != 1500 || result.Created != 1 || len(result.Errors) != 1000 {
			t.Errorf("%d failed, %d created, %d named", result.Failed, result.Created, len(result.Errors))
		}
		for i, e := range result.Errors {
			if e.Line != int64(i+1) {
				t.Fatalf("error %d is of line %d", i, e.Line)
			}
		}
	})

	t.Run("lines of one user are applied in their order", func(t *testing.T) {
		a := s.signUp()
		var b strings.Builder
		for i := range 200 {
			fmt.Fprintf(&b, `{"external_id":"u%d","traits":{"last":%d}}`+"\n", i%4, i)
		}
		if result := run(t, a, "", b.String()); result.Created != 4 || result.Updated != 196 {
			t.Errorf("%+v", result)
		}
		for i := range 4 {
			wantJSON(t, fmt.Sprintf(`{"last":%d}`, 196+i), traits(t, a, fmt.Sprintf("u%d", i)))
		}
	})

	t.Run("a large file streams through", func(t *testing.T) {
		a := s.signUp()
		const lines, size = 12, 100 << 10 // 1.2 MiB, beyond the limit of a body
		reader, writer := io.Pipe()
		go func() {
			text := strings.Repeat("x", size)
			for i := range lines {
				if _, err := fmt.Fprintf(writer, `{"external_id":"bulk-%d","traits":{"text":"%s"}}`+"\n", i, text); err != nil {
					break
				}
			}
			writer.Close()
		}()
		if result := run(t, a, "", reader); result.Created != lines || result.Failed != 0 {
			t.Errorf("%d created, %d failed", result.Created, result.Failed)
		}
		testkit.Eventually(t, "the last line is applied whole", func() bool {
			got := a.get(fmt.Sprint("/api/v1/users/ext:bulk-", lines-1), eventual())
			return got.Status == http.StatusOK && len(got.Body) > size
		})
	})

	t.Run("what arrives is applied before the rest is there", func(t *testing.T) {
		a := s.signUp()
		reader, writer := io.Pipe()
		done := make(chan answer, 1)
		go func() { done <- a.send("POST", "/api/v1/users/import", reader, ndjson) }()
		if _, err := io.WriteString(writer, `{"external_id":"early"}`+"\n"+`{"external_id":"late"`); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, "the first line is applied", func() bool { return a.get("/api/v1/users/ext:early").Status == http.StatusOK })
		if _, err := io.WriteString(writer, "}\n"); err != nil {
			t.Fatal(err)
		}
		writer.Close()
		if result := want[httpapi.ImportResult](t, http.StatusOK, <-done); result.Created != 2 {
			t.Errorf("%+v", result)
		}
	})

	t.Run("other media types and modes are refused", func(t *testing.T) {
		a := s.signUp()
		line := `{"external_id":"x"}`
		wantProblem(t, http.StatusUnsupportedMediaType, "wrong_content_type", a.send("POST", "/api/v1/users/import", line))
		wantProblem(t, http.StatusUnsupportedMediaType, "wrong_content_type", a.send("POST", "/api/v1/users/import", line, ndjson, header("Content-Encoding", "gzip")))
		wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.send("POST", "/api/v1/users/import?mode=upsert", line, ndjson))
		wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.send("POST", "/api/v1/users/import?dry_run=true", line, ndjson))
		wantUsers(t, a, "")
	})
}

// imported waits until an import in the background has ended.
func (a account) imported(named id.Import) (i httpapi.Import) {
	a.Helper()
	testkit.Eventually(a, "the import has ended", func() bool {
		i = want[httpapi.Import](a, http.StatusOK, a.get("/api/v1/users/imports/"+string(named)))
		return i.EndedAt != nil
	})
	return i
}

func TestAnImportInTheBackground(t *testing.T) {
	t.Parallel()
	s := sharedContract(t)
	a, other := s.signUp(), s.signUp()
	body := `{"external_id":"ann","traits":{"a":1}}` + "\nnot json\n" + `{"external_id":"ann","traits":{"b":2}}`
	got := a.send("POST", "/api/v1/users/import?async=true&mode=merge", body, ndjson)
	accepted := want[httpapi.Import](t, http.StatusAccepted, got)
	if at := got.Header.Get("Location"); at != "/api/v1/users/imports/"+string(accepted.ID) {
		t.Errorf("it is said to be at %q", at)
	}
	if accepted.Lines != 3 || accepted.Mode != httpapi.ImportedMerge {
		t.Errorf("%+v", accepted)
	}
	done := a.imported(accepted.ID)
	if done.Status != httpapi.ImportCompleted || done.Progress != 1 || done.Created != 1 || done.Updated != 1 || done.Failed != 1 || done.Errors[0].Line != 2 {
		t.Errorf("%+v", done)
	}
	wantJSON(t, `{"a":1,"b":2}`, want[httpapi.User](t, http.StatusOK, a.get("/api/v1/users/ext:ann")).Traits)
	wantProblem(t, http.StatusNotFound, "import_unknown", other.get("/api/v1/users/imports/"+string(accepted.ID)))
	wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.send("POST", "/api/v1/users/import?async=maybe", "", ndjson))
}
