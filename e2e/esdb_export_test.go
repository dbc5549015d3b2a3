package e2e

import (
	"bytes"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"kindred/app"
	"kindred/eventstore/esdbstore/esdbtest"
	"kindred/projections/auditing"
)

// TestOnAnEventStoreAnExportIsWholeInBoundedMemory reads what no client's
// index leads to: each event by its position.
func TestOnAnEventStoreAnExportIsWholeInBoundedMemory(t *testing.T) {
	s := startService(t, onEventStore(t, esdbtest.StartNode(t)), func(c *app.Config) { c.Roles = []string{app.RoleAPI, app.RoleProjections} })
	a, other := storied(s), storied(s)
	const users, size = 1100, 6 << 10
	a.importUsers(users, func(int) string { return `{"text":"` + strings.Repeat("x", size) + `"}` })
	jwks := s.send("GET", "/.well-known/audit-jwks.json", nil).Body
	first := a.export()
	if found := findings(t, jwks, first); len(found) > 0 || bytes.Count(first, []byte("\n")) < users {
		t.Fatalf("%d lines, %q", bytes.Count(first, []byte("\n")), found)
	}
	if foreign := []byte(other.Client.ID); bytes.Contains(first, foreign) {
		t.Error("it holds events of another client")
	}
	opened := a.get(a.under("/history?personal=open"), header("Accept", "application/x-ndjson"))
	if opened.Status != http.StatusOK || bytes.Count(opened.Body, []byte(`"personal":{`)) < users {
		t.Errorf("%d: %d events are opened", opened.Status, bytes.Count(opened.Body, []byte(`"personal":{`)))
	}
	if found := findings(t, jwks, opened.Body, lastHead(t, first)); len(found) > 0 {
		t.Errorf("opened: %q", found)
	}

	f := openApp(t, s.Config)
	auditor, err := f.Auditor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const bound = users * size // of a few pages of half a MiB, on their way through the client and the server, which is in this process too
	s.stop()                   // what it does in the background takes memory as well
	before := live()
	peak, written := uint64(0), countingWriter(0)
	report := func(auditing.Exporting) { peak = max(peak, live()) }
	if err := auditor.Export(t.Context(), a.Client.ID, false, &written, report); err != nil {
		t.Fatal(err)
	}
	if grown := int64(peak) - int64(before); written < users*size || grown > bound {
		t.Errorf("an export of %d bytes takes %d of memory", written, grown)
	}
}

// live is the memory in use, in bytes.
func live() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

type countingWriter int

func (w *countingWriter) Write(p []byte) (int, error) {
	*w += countingWriter(len(p))
	return len(p), nil
}
