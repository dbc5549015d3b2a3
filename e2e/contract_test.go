package e2e

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kindred/app"

	"github.com/google/go-cmp/cmp"
)

// keepContract starts a service that must not fail at anything: no answer of
// 500 or above, nothing logged as an error.
func keepContract(t testing.TB, changes ...func(*app.Config)) *service {
	t.Helper()
	s := startService(t, changes...)
	t.Cleanup(func() {
		s.stop()
		var found []string
		for line := range strings.Lines(s.Logs.String()) {
			if failed(line) && !strings.HasSuffix(line, "code=unverifiable\n") { // see send
				found = append(found, line)
			}
		}
		if len(found) > 0 {
			t.Errorf("the service failed:\n%s", strings.Join(found[:min(len(found), 5)], ""))
		}
	})
	return s
}

// failed says whether a line of the log tells of a failure. An expression takes
// long for a log under the race detector.
func failed(line string) bool {
	_, request, _ := strings.Cut(line, "msg=request ")
	return strings.Contains(line, "level=ERROR") || strings.Contains(line, "panic") || strings.Contains(request, "status=5")
}

// shape lists the fields of a JSON document with their types, as in
// "client.id string". A list is described by its first item.
func shape(t testing.TB, document []byte) []string {
	t.Helper()
	var v any
	if err := json.Unmarshal(document, &v); err != nil {
		t.Fatalf("%v: %s", err, document)
	}
	var lines []string
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, field := range v {
				walk(strings.TrimPrefix(path+"."+name, "."), field)
			}
			if len(v) == 0 {
				lines = append(lines, path+" object")
			}
		case []any:
			if len(v) == 0 {
				lines = append(lines, path+"[]")
				return
			}
			walk(path+"[]", v[0])
		case nil:
			lines = append(lines, path+" null")
		case float64:
			lines = append(lines, path+" number")
		default:
			lines = append(lines, fmt.Sprintf("%s %T", path, v))
		}
	}
	walk("", v)
	slices.Sort(lines)
	return lines
}

// wantShape checks a document against all the fields that it must have, and
// no others.
func wantShape(t testing.TB, document []byte, fields ...string) {
	t.Helper()
	slices.Sort(fields)
	if diff := cmp.Diff(fields, shape(t, document)); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
}

var timestamp = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$`)

// wantTimestamps checks that times are in UTC, with microseconds.
func wantTimestamps(t testing.TB, document []byte) {
	t.Helper()
	for _, found := range regexp.MustCompile(`"([a-z]+_at|timestamp)":"([^"]*)"`).FindAllSubmatch(document, -1) {
		if !timestamp.Match(found[2]) {
			t.Errorf("%s is %s", found[1], found[2])
		}
	}
}
