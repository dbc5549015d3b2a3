package audit_test

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kindred"
	"kindred/domain/id"
	"kindred/eventstore/audit"
	"kindred/testkit"
)

// vector reads a block of docs/history.md.
func vector[T any](t *testing.T, name string) T {
	t.Helper()
	page := testkit.Must(kindred.Documentation.ReadFile("docs/history.md"))(t)
	block := regexp.MustCompile("(?s)```json " + name + "\n(.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatalf("docs/history.md has no block %q", name)
	}
	var v T
	if err := json.Unmarshal(block[1], &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// A verifier refuses fields that it does not know.
func TestTheSpecificationNamesEachFieldOfAnEvent(t *testing.T) {
	t.Parallel()
	page := string(testkit.Must(kindred.Documentation.ReadFile("docs/history.md"))(t))
	_, event, _ := strings.Cut(page, "**An event** has")
	event, _, _ = strings.Cut(event, "Its `hash`")
	var fields, written []string
	for field := range reflect.TypeFor[audit.Event]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		fields = append(fields, name)
	}
	for _, name := range regexp.MustCompile("`(.*?)`").FindAllStringSubmatch(event, -1) {
		written = append(written, name[1])
	}
	slices.Sort(fields)
	slices.Sort(written)
	if diff := cmp.Diff(fields, written); diff != "" {
		t.Errorf("fields (-real +written):\n%s", diff)
	}
}

// TestTheVectorsOfTheSpecificationHold holds docs/history.md against the code
// that signs histories.
func TestTheVectorsOfTheSpecificationHold(t *testing.T) {
	t.Parallel()
	type hashed struct {
		audit.Event
		IDBytes string `json:"id_bytes"`
	}
	one := vector[hashed](t, "hash")
	got := testkit.Must(one.Recompute())(t)
	if got != one.Hash {
		t.Errorf("the event's hash is %x", got)
	}
	if raw, err := id.Bytes(one.ID); err != nil || fmt.Sprintf("%x", raw) != one.IDBytes {
		t.Errorf("the id's bytes are %x, %v", raw, err)
	}

	var events []audit.Hash
	var roots []audit.Hash
	for i := range 7 {
		events = append(events, sha256.Sum256(fmt.Append(nil, i)))
		roots = append(roots, reference(events))
	}
	if diff := cmp.Diff(texts(t, roots), texts(t, vector[[]audit.Hash](t, "roots"))); diff != "" {
		t.Errorf("roots (-real +written):\n%s", diff)
	}
	_, nodes := grown(events[:5])
	inclusion, inclusionFailed := audit.Inclusion(nodes, 2, 5)
	consistency, consistencyFailed := audit.Consistency(nodes, 3, 5)
	if err := errors.Join(inclusionFailed, consistencyFailed); err != nil {
		t.Fatal(err)
	}
	want := map[string][]audit.Hash{"inclusion": inclusion, "consistency": consistency}
	if diff := cmp.Diff(texts(t, want), texts(t, vector[map[string][]audit.Hash](t, "proofs"))); diff != "" {
		t.Errorf("proofs (-real +written):\n%s", diff)
	}
}

func texts(t *testing.T, hashes any) string {
	t.Helper()
	out := testkit.Must(json.MarshalIndent(hashes, "", "  "))(t)
	return string(out)
}
