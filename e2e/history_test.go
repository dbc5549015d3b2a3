package e2e

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/sumdb/tlog"

	"kindred/eventstore/audit"
	"kindred/httpapi"
	"kindred/projections"
	"kindred/testkit"
)

// storied makes a client that something of everything has happened to.
func storied(s *service) account {
	s.Helper()
	a := s.signUp()
	ada := a.createUser("ada <&> \u2028 ✓", map[string]any{"age": 31, "likes": "jazz"})
	bob := a.createUser("bob", map[string]any{"age": 32})
	for i := range 10 {
		a.send("PATCH", "/api/v1/users/"+string(ada.ID), map[string]any{"traits": map[string]any{"age": 40 + i}})
	}
	a.send("POST", "/api/v1/users/"+string(ada.ID)+"/matches", map[string]any{})
	a.subscribe("http://127.0.0.1:1/", "a secret that stays")
	a.createAPIKey("read")
	wantDone(s, a.send("DELETE", "/api/v1/users/"+string(bob.ID), nil))
	moved := map[string]string{"email": "moved-" + a.Email, "password": a.Password, "role": "viewer"}
	for _, of := range []account{a, s.signUp(), a} { // the address is another's between
		added := want[httpapi.Member](s, http.StatusCreated, of.sendTo("POST", "/members", moved))
		wantDone(s, of.sendTo("DELETE", "/members/"+string(added.ID), nil))
	}
	return a
}

func (a account) export() []byte {
	a.Helper()
	got := a.get(a.under("/history"), header("Accept", "application/x-ndjson"))
	if got.Status != http.StatusOK || got.Header.Get("Content-Type") != "application/x-ndjson" {
		a.Fatalf("%d %s: %.300s", got.Status, got.Header.Get("Content-Type"), got.Body)
	}
	return got.Body
}

// findings is what is wrong with an export.
func findings(t testing.TB, jwks, export []byte, kept ...string) []string {
	t.Helper()
	keys, err := audit.ParseKeys(jwks)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	if _, err := audit.Verify(bytes.NewReader(export), keys, kept, func(f audit.Finding) { found = append(found, f.String()) }); err != nil {
		t.Fatal(err)
	}
	return found
}

// lastHead is the head that an export ends with.
func lastHead(t testing.TB, export []byte) string {
	t.Helper()
	lines := bytes.Split(bytes.TrimSpace(export), []byte("\n"))
	var head struct{ Head string }
	if err := json.Unmarshal(lines[len(lines)-1], &head); err != nil || head.Head == "" {
		t.Fatalf("the export does not end with a head: %v", err)
	}
	return head.Head
}

// The ends of the verifier in another language.
const (
	scriptGenuine = iota
	scriptNotGenuine
	scriptUnusable
)

// byScript is what the verifier in another language says.
func byScript(t testing.TB, jwks, export []byte, kept ...string) (end int, said string) {
	t.Helper()
	dir := t.TempDir()
	args := []string{filepath.Join("..", "scripts", "verify-history.py")}
	for i, content := range append([]string{string(jwks), string(export)}, kept...) {
		name := filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, name)
	}
	out, err := exec.CommandContext(t.Context(), "python3", args...).CombinedOutput()
	if exit, exited := errors.AsType[*exec.ExitError](err); exited {
		return exit.ExitCode(), string(out)
	} else if err != nil {
		t.Fatal(err)
	}
	return scriptGenuine, string(out)
}

// cutOff is told of an export that was compared with no head.
const cutOff = "what happened after these events may have been cut off"

func TestAHistoryIsShownAndProven(t *testing.T) {
	t.Parallel()
	s := shared(t)
	a, other := storied(s), storied(s)
	jwks := s.send("GET", "/.well-known/audit-jwks.json", nil).Body

	first := a.export()
	a.createUser("carl", map[string]any{})
	export := a.export()
	if found := findings(t, jwks, export, lastHead(t, first), lastHead(t, export)); len(found) > 0 {
		t.Fatalf("a genuine export: %q", found)
	}
	if found := findings(t, jwks, export, lastHead(t, other.export())); len(found) == 0 {
		t.Error("the head of another client fits")
	}
	if found := findings(t, jwks, first, lastHead(t, export)); len(found) == 0 {
		t.Error("an export that is older than the head that was kept passes")
	}
	if _, err := exec.LookPath("python3"); err == nil {
		if end, said := byScript(t, jwks, first, lastHead(t, export)); end != scriptNotGenuine {
			t.Errorf("an export that is older than the head that was kept passes the script: %d %s", end, said)
		}
		if end, said := byScript(t, jwks, first); end != scriptGenuine || !strings.Contains(said, cutOff) {
			t.Errorf("the script, without a head that was kept: %d %s", end, said)
		}
		proof := string(a.get(a.under("/history/proof")).Body)
		for _, kept := range []string{lastHead(t, first), string(first), strings.TrimSpace(proof), "\n" + string(first) + "\n" + proof} {
			if end, said := byScript(t, jwks, export, kept); end != scriptGenuine {
				t.Errorf("the script: %d %s", end, said)
			}
		}
		spread := bytes.ReplaceAll(export, []byte("\n"), []byte("\r\n\r\n")) // line ends are no part of an export
		if end, said := byScript(t, jwks, spread); end != scriptGenuine {
			t.Errorf("the script, of other line ends: %d %s", end, said)
		}
		for what, tampered := range map[string][]byte{
			"a changed type":         bytes.Replace(export, []byte("end_user.created"), []byte("end_user.creates"), 1),
			"a line that is no text": bytes.Replace(export, []byte("end_user.created"), []byte("end_user.\xff"), 1),
			"a great revision":       bytes.Replace(export, []byte(`"revision":0`), []byte(`"revision":99999999999999999999`), 1),
			"an ordinal that is 1.0": bytes.Replace(export, []byte(`"ordinal":1,`), []byte(`"ordinal":1.0,`), 1),
			"a padded signature":     append(bytes.TrimSuffix(export, []byte("\"}\n")), []byte("=\"}\n")...),
			"a nested line":          append(bytes.Repeat([]byte("["), 1<<20), export...),
		} {
			if end, said := byScript(t, jwks, tampered); end != scriptNotGenuine || strings.Contains(said, "Traceback") {
				t.Errorf("the script, of %s: %d %.1000s", what, end, said)
			}
		}
		for what, kept := range map[string]string{"an empty file": "", "no JWS": "x", "no head": `{"size": 1}`, "broken JSON": `{"head`} {
			if end, said := byScript(t, jwks, export, kept); end != scriptUnusable || strings.Contains(said, "Traceback") {
				t.Errorf("the script, given %s as a head: %d %s", what, end, said)
			}
		}
	}

	var paged []httpapi.HistoryEvent
	for cursor := ""; ; {
		page := want[httpapi.HistoryPage](t, http.StatusOK, a.get(a.under("/history?limit=7"+cursor)))
		paged = append(paged, page.Data...)
		if page.NextCursor == nil {
			break
		}
		cursor = "&cursor=" + *page.NextCursor
	}
	if events := bytes.Count(export, []byte(`{"ordinal":`)); len(paged) != events {
		t.Errorf("%d events by pages, %d in the export", len(paged), events)
	}
	for i, e := range paged {
		if e.Ordinal != int64(i) || e.Missing != nil {
			t.Fatalf("event %d: %+v", i, e)
		}
	}

	bare := want[httpapi.HistoryPage](t, http.StatusOK, a.get(a.under("/history?data=false&limit=200"))).Data
	for i, e := range bare {
		if whole := paged[i]; e.Data != "" || whole.Data == "" {
			t.Errorf("without data event %d has %q", i, e.Data)
		} else if whole.Data = ""; !reflect.DeepEqual(e, whole) {
			t.Errorf("without data event %d is %+v", i, e)
		}
	}
	if len(bare) != len(paged) {
		t.Errorf("%d of %d events without data", len(bare), len(paged))
	}
	wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.get(a.under("/history?data=false"), header("Accept", "application/x-ndjson")))

	erased := want[httpapi.HistoryPage](t, http.StatusOK, a.get(a.under("/history?type=end_user.created&personal=open"))).Data
	if len(erased) != 3 || erased[0].Personal == nil || *erased[0].Personal.ExternalID != "ada <&> \u2028 ✓" || erased[1].Personal != nil ||
		!slices.Contains(erased[1].Erased, "traits") {
		t.Errorf("opened: %+v", erased)
	}
	if opened := a.get(a.under("/history?personal=open&limit=200")).Body; bytes.Contains(opened, []byte("a secret that stays")) || bytes.Contains(opened, []byte("argon2")) {
		t.Error("a secret is shown")
	}
	for query, events := range map[string]int{
		"?after=" + fmt.Sprint(len(paged)-3):                                                    2,
		"?stream=" + *paged[0].Stream + "&limit=1":                                              1,
		"?actor=" + string(a.User.ID) + "&type=end_user.traits_changed":                         10,
		"?from=" + time.Now().Add(time.Hour).UTC().Format(time.RFC3339):                         0,
		"?to=" + time.Now().Add(-time.Hour).UTC().Format(time.RFC3339):                          0,
		"?to=" + time.Now().Add(time.Hour).UTC().Format(time.RFC3339) + "&type=end_user.erased": 1,
	} {
		if got := want[httpapi.HistoryPage](t, http.StatusOK, a.get(a.under("/history"+query))).Data; len(got) != events {
			t.Errorf("%s: %d events, want %d", query, len(got), events)
		}
	}
	wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.get(a.under("/history?type=x"), header("Accept", "application/x-ndjson")))
	wantProblem(t, http.StatusForbidden, "missing_scope", a.with(s.exchange(a.createAPIKey("read", "write").RawKey)).get(a.under("/history")))
	checkProofs(t, a, jwks, paged)
}

func checkProofs(t *testing.T, a account, jwks []byte, events []httpapi.HistoryEvent) {
	t.Helper()
	keys, err := audit.ParseKeys(jwks)
	if err != nil {
		t.Fatal(err)
	}
	var tree audit.Tree
	for _, e := range events {
		answer := a.get(a.under(fmt.Sprintf("/history/proof?ordinal=%d&from_size=%d", e.Ordinal, e.Ordinal+1)))
		if shown := want[httpapi.HistoryProof](t, http.StatusOK, answer); *shown.Hash != e.Hash {
			t.Errorf("event %d: hash %s", e.Ordinal, *shown.Hash)
		}
		var proof audit.Proof
		if err := json.Unmarshal(answer.Body, &proof); err != nil {
			t.Fatal(err)
		}
		tree.Append(proof.Hash, nil)
		from := *proof.FromSize
		proof.FromSize = nil // no head of that size was signed
		proven, err := proof.Verify(keys, nil)
		if err != nil || *proven.Event != e.Ordinal || proven.Head.Client != a.Client.ID {
			t.Fatalf("event %d: %+v, %v", e.Ordinal, proven, err)
		}
		path := make(tlog.TreeProof, len(proof.Consistency))
		for i, h := range proof.Consistency {
			path[i] = tlog.Hash(h)
		}
		if err := tlog.CheckTree(path, proven.Head.Size, tlog.Hash(proven.Head.Root), from, tlog.Hash(tree.Root())); err != nil {
			t.Errorf("size %d: %v", from, err)
		}
	}
	wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.get(a.under("/history/proof?ordinal=100000")))
}

// TestEveryTamperedExportIsFound changes an export in a thousand ways, also by
// somebody who knows the rules, but not the audit key.
func TestEveryTamperedExportIsFound(t *testing.T) {
	t.Parallel()
	s := shared(t)
	a := storied(s)
	jwks := s.send("GET", "/.well-known/audit-jwks.json", nil).Body
	export := a.export()
	random := testkit.Random(t)
	_, err := exec.LookPath("python3")
	for n := range 1000 {
		what, tampered := tamper(t, random, export)
		if len(findings(t, jwks, tampered)) == 0 {
			t.Errorf("%s is not found:\n%.2000s", what, tampered)
		}
		if n%40 == 0 && err == nil {
			if end, said := byScript(t, jwks, tampered); end != scriptNotGenuine {
				t.Errorf("%s is not found by the script: %d %s", what, end, said)
			}
		}
	}
}

func tamper(t *testing.T, random *rand.Rand, export []byte) (what string, tampered []byte) {
	t.Helper()
	lines := strings.SplitAfter(strings.TrimSuffix(string(export), "\n"), "\n")
	var events []int // by line; heads stand between them, as often as they were signed
	for i, line := range lines {
		if strings.HasPrefix(line, `{"ordinal":`) {
			events = append(events, i)
		}
	}
	at := random.IntN(len(events))
	i, j := events[at], events[(at+1+random.IntN(len(events)-1))%len(events)]
	renumber := random.IntN(2) == 0
	change := func(line string) string {
		var e map[string]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		fields := []string{"id", "type", "version", "stream", "revision", "recorded_at", "actor", "causation_id", "correlation_id", "data", "meta", "hash"}
		field := fields[random.IntN(len(fields))]
		what += " " + field
		switch value := e[field].(type) {
		case float64:
			e[field] = value + 1
		case nil:
			e[field] = "made up"
		case string:
			at := random.IntN(len(value))
			for at > 0 && value[at] >= 0x80 {
				at--
			}
			digit := "0"
			if value[at] == '0' {
				digit = "1"
			}
			e[field] = value[:at] + digit + value[min(at+1, len(value)):]
		}
		return rehashed(t, e, renumber && field != "hash")
	}
	switch choice := random.IntN(9); choice {
	case 0, 1:
		what = "a change of"
		lines[i] = change(lines[i])
	case 2:
		what = "a dropped event"
		lines = slices.Delete(lines, i, i+1)
	case 3:
		what = "an event that comes twice"
		lines = slices.Insert(lines, j, lines[i])
	case 4:
		what = "a forged event, which is another with a change of"
		lines = slices.Insert(lines, j, change(lines[i]))
	case 5:
		what = "two events that changed places"
		lines[i], lines[j] = lines[j], lines[i]
	case 6:
		what, renumber = "a forged event in the line of a head", false
		last := &lines[len(lines)-1]
		*last = strings.TrimSuffix(*last, "}") + "," + lines[i][1:]
	case 7:
		what, renumber = "forged data beside what was recorded", false
		lines[i] = [...]string{
			strings.Replace(lines[i], `"data":`, `"data":"{}","data":`, 1),
			strings.Replace(lines[i], `"data":`, `"data":"{}","Data":`, 1),
			strings.TrimSuffix(lines[i], "\n") + lines[j],
		}[random.IntN(3)]
	default:
		what = "a missing end"
		lines = lines[:i+1]
	}
	if renumber {
		what += ", renumbered"
		n := 0
		for i, line := range lines {
			var e map[string]any
			if json.Unmarshal([]byte(line), &e) != nil || e["head"] != nil {
				continue
			}
			e["ordinal"] = n
			lines[i] = rehashed(t, e, false)
			n++
		}
	}
	return what, []byte(strings.Join(lines, ""))
}

// rehashed is a line of an export, with a hash that fits if asked for.
func rehashed(t *testing.T, line map[string]any, rehash bool) string {
	t.Helper()
	encoded, err := json.Marshal(line)
	if err != nil {
		t.Fatal(err)
	}
	if rehash {
		var e audit.Event
		if json.Unmarshal(encoded, &e) == nil {
			if hash, err := e.Recompute(); err == nil {
				line["hash"] = hex.EncodeToString(hash[:])
				encoded, _ = json.Marshal(line)
			}
		}
	}
	return string(encoded) + "\n"
}

// TestEveryTamperedLogIsFound changes the log behind the service's back, also
// by somebody who builds the history anew after that and takes away the heads:
// the head that was kept outside finds it.
func TestEveryTamperedLogIsFound(t *testing.T) {
	t.Parallel()
	s := startService(t)
	a := storied(s)
	jwks := s.send("GET", "/.well-known/audit-jwks.json", nil).Body
	f := openApp(t, s.Config)
	caughtUp(t, f)
	kept := lastHead(t, a.export())
	s.stop()
	auditor, err := f.Auditor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	do := func(sql string, args ...any) int64 {
		t.Helper()
		done, err := f.Pool.Exec(t.Context(), sql, args...)
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		return done.RowsAffected()
	}
	do(`DROP INDEX events_stream_once`) // as whoever tampers could
	do(`CREATE TABLE saved AS TABLE events`)
	do(`CREATE TABLE saved_heads AS TABLE audit_heads`)
	random := testkit.Random(t)
	one := `position = (SELECT position FROM saved WHERE client = $1 ORDER BY position OFFSET $2 LIMIT 1)`
	ways := []string{
		`UPDATE events SET data = set_byte(data, length(data) / 2, get_byte(data, length(data) / 2) # 1) WHERE ` + one,
		`UPDATE events SET meta = set_byte(meta, length(meta) / 2, get_byte(meta, length(meta) / 2) # 1) WHERE ` + one,
		`UPDATE events SET type = 'end_user.erased' WHERE type <> 'end_user.erased' AND ` + one,
		`UPDATE events SET version = version + 1 WHERE ` + one,
		`UPDATE events SET stream = stream || 'x' WHERE ` + one,
		`UPDATE events SET revision = revision + 1 WHERE ` + one,
		`UPDATE events SET recorded_at = recorded_at + interval '1 second' WHERE ` + one,
		`UPDATE events SET event_id = gen_random_uuid() WHERE ` + one,
		`UPDATE events SET client = 'cli_00000000000000000000000000' WHERE ` + one,
		`DELETE FROM events WHERE ` + one,
		`INSERT INTO events SELECT -position, client, stream, revision + 1000, gen_random_uuid(), type, version, data, meta, recorded_at FROM saved WHERE ` + one,
		`UPDATE events e SET data = o.data, meta = o.meta, type = o.type, event_id = o.event_id, stream = o.stream, revision = o.revision
		 FROM saved o WHERE o.position = e.position + 1 AND e.` + one,
	}
	found := map[string]int{}
	for n := range 100 {
		do(`TRUNCATE events`)
		do(`INSERT INTO events TABLE saved`)
		way := ways[n%len(ways)]
		if do(way, string(a.Client.ID), random.IntN(15)) != 1 {
			continue // it is so already
		}
		cover := n%10 == 9 && !strings.HasPrefix(way, "INSERT")
		if cover {
			do(`DELETE FROM audit_heads`)
			do(`DELETE FROM leases`)
			if err := f.Runner.Rebuild(t.Context(), projections.History{}, nil); err != nil {
				t.Fatal(err)
			}
		}
		var export bytes.Buffer
		failed := auditor.Export(t.Context(), a.Client.ID, false, &export, nil)
		if len(findings(t, jwks, export.Bytes(), kept)) == 0 {
			t.Errorf("not found (%v): %s", failed, way)
		}
		found[way]++
		if cover {
			do(`TRUNCATE events, audit_heads`)
			do(`INSERT INTO events TABLE saved`)
			do(`INSERT INTO audit_heads TABLE saved_heads`)
			if err := f.Runner.Rebuild(t.Context(), projections.History{}, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(found) != len(ways) {
		t.Errorf("%d of %d ways were tried", len(found), len(ways))
	}
	do(`TRUNCATE events`)
	do(`INSERT INTO events TABLE saved`)
	var export bytes.Buffer
	if err := auditor.Export(t.Context(), a.Client.ID, false, &export, nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string(nil), findings(t, jwks, export.Bytes(), kept)); diff != "" {
		t.Errorf("the log as it was: %s", diff)
	}
}

// TestHistoryByTheCommandLine exports and verifies as an auditor does.
func TestHistoryByTheCommandLine(t *testing.T) {
	t.Parallel()
	s := startService(t)
	a := storied(s)
	run := func(args ...string) (string, error) {
		return tool(t, s.Config, append([]string{"history"}, args...)...)
	}
	nobody := "cli_0000000000000000000000000g"
	for _, args := range [][]string{{"list"}, {"export"}, {"state", "--at", "0"}} {
		if out, err := run(append(args, "--client", nobody)...); err == nil || !strings.Contains(err.Error(), nobody) || out != "" {
			t.Errorf("%q of a client that there never was: %v\n%s", args, err, out)
		}
	}
	export, err := run("export", "--client", string(a.Client.ID))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "export")
	write := func(content string) {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(export)
	jwks := s.URL + "/.well-known/audit-jwks.json"
	if said, err := run("verify", "--jwks", jwks, "--head", file, file); err != nil || !strings.HasPrefix(said, "genuine: ") || strings.Contains(said, cutOff) {
		t.Errorf("%s %v", said, err)
	}
	if said, err := run("verify", "--jwks", jwks, file); err != nil || !strings.Contains(said, cutOff) {
		t.Errorf("without a head that was kept: %s %v", said, err)
	}
	if said, err := tool(t, s.Config, "keys", "rotate-audit"); err != nil || !strings.Contains(said, "A new key signs") {
		t.Fatal(said, err)
	}
	keys := want[httpapi.JWKS](t, http.StatusOK, s.send("GET", "/.well-known/audit-jwks.json", nil)).Keys
	newer := filepath.Join(t.TempDir(), "newer")
	if err := os.WriteFile(newer, a.export(), 0o600); err != nil {
		t.Fatal(err)
	}
	if said, err := run("verify", "--jwks", jwks, "--head", file, newer); err != nil || len(keys) != 2 {
		t.Errorf("after a rotation of %d keys: %s %v", len(keys), said, err)
	}
	write(strings.Replace(export, `"revision":1`, `"revision":2`, 1))
	if said, err := run("verify", "--jwks", jwks, file); err == nil || !strings.Contains(said, "evt_") {
		t.Errorf("%s %v", said, err)
	}
	listed, err := run("list", "--client", string(a.Client.ID), "--type", "end_user.created", "--personal")
	if err != nil || strings.Count(listed, "\n") != 2 || !strings.Contains(listed, `"erased":["external_id","traits"]`) {
		t.Errorf("%v %s", err, listed)
	}
}
