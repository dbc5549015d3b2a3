package event

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"kindred/golden"
	"kindred/testkit"
)

// keysOf lists the keys of a JSON value, each behind those above it; an array
// counts as one of its items, and what is sealed as one key.
func keysOf(at string, value any) (keys []string) {
	switch value := value.(type) {
	case map[string]any:
		for key, child := range value {
			keys = append(keys, at+key)
			if box, ok := child.(map[string]any); ok && box["cipher"] != nil {
				keys[len(keys)-1] += " sealed"
				continue
			}
			keys = append(keys, keysOf(at+key+".", child)...)
		}
	case []any:
		for _, child := range value {
			keys = append(keys, keysOf(at, child)...)
		}
	}
	return keys
}

func parsed(t *testing.T, text []byte) (value any) {
	t.Helper()
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// The keys of what is written today are those of the code; those of what was
// written before are those of its samples.
func TestTypesVersionsAndKeysOfEventsStay(t *testing.T) {
	r, lines := All(), []string{}
	add := func(name string, version int, text []byte) {
		lines = append(lines, fmt.Sprintf("%s v%d", name, version))
		for _, key := range keysOf("", parsed(t, text)) {
			lines = append(lines, fmt.Sprintf("%s v%d key %s", name, version, key))
		}
	}
	newest := map[string]int{}
	for _, e := range samples(t) {
		name, version, err := r.Name(e)
		if err != nil {
			t.Fatal(err)
		}
		text := testkit.Must(json.Marshal(e))(t)
		newest[name] = version
		add(name, version, text)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Types())) {
		for version := 1; version < newest[name]; version++ {
			text := testkit.Must(os.ReadFile(filepath.Join("testdata", fmt.Sprintf("%s.v%d.json", name, version))))(t)
			add(name, version, text)
		}
	}
	golden.Check(t, "events.txt", lines)
}

// Events of which there is one each are found by these keys, and personal fields
// by these names.
func TestKeysThatFollowFromEventsStay(t *testing.T) {
	var lines []string
	for _, e := range samples(t) {
		name, _, err := All().Name(e)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := e.(Single); ok {
			for _, kind := range []string{"impression", "click", "dismiss", "conversion"} {
				if key, ok := ofKind(e, kind).(Single).Key(); ok {
					lines = append(lines, fmt.Sprintf("%s is one by its key: %s %s", name, kind, key))
				}
			}
		}
		if n, ok := e.(Named); ok {
			field, _ := n.Name()
			lines = append(lines, fmt.Sprintf("%s makes its subject found by: %s", name, field))
		}
	}
	golden.Check(t, "event_keys.txt", lines)
}

// ofKind is an event with another kind.
func ofKind(e Event, kind string) Event {
	v := reflect.New(reflect.TypeOf(e)).Elem()
	v.Set(reflect.ValueOf(e))
	v.FieldByName("Kind").SetString(kind)
	return v.Interface().(Event)
}
