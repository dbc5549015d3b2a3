package traits

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
)

// Merge applies a merge patch (RFC 7396) to a document; both are JSON objects. Names keep
// their order, and what a list holds is not looked into. The error is [ErrNotObject].
func Merge(document, patch []byte) (json.RawMessage, error) {
	merged, err := membersOf(document)
	if err != nil {
		return nil, err
	}
	changes, err := membersOf(patch)
	if err != nil {
		return nil, err
	}
	return mergeMembers(merged, changes)
}

func mergeMembers(merged, changes []member) (json.RawMessage, error) {
	at := make(map[string]int, len(merged))
	for i, m := range merged {
		at[m.name] = i
	}
	for _, change := range changes {
		i, there := at[change.name]
		if !there {
			i = len(merged)
			at[change.name] = i
			merged = append(merged, member{name: change.name})
		}
		switch {
		case change.value == "null":
			change.value = "" // it is gone
		case isObject(change.value):
			value, err := mergeValue(merged[i].value, change.value)
			if err != nil {
				return nil, err
			}
			change.value = string(value)
		}
		merged[i].value = change.value
	}
	return object(merged)
}

func isObject(value string) bool { return strings.HasPrefix(value, "{") }

// mergeValue merges an object into a value, which any other than an object gives way to.
func mergeValue(value, patch string) (json.RawMessage, error) {
	if !isObject(value) {
		value = "{}"
	}
	merged, err := membersIn(value)
	if err != nil {
		return nil, err
	}
	changes, err := membersIn(patch)
	if err != nil {
		return nil, err
	}
	return mergeMembers(merged, changes)
}

// object writes members, but for those without a value.
func object(members []member) (json.RawMessage, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	out.WriteByte('{')
	for _, m := range members {
		if m.value == "" {
			continue
		}
		if out.Len() > 1 {
			out.WriteByte(',')
		}
		if err := encoder.Encode(m.name); err != nil {
			return nil, err
		}
		out.Truncate(out.Len() - 1) // the end of the line
		out.WriteByte(':')
		out.WriteString(m.value)
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// Same says whether two JSON objects hold the same, in whatever order names stand. Members that are
// written alike are not decoded.
func Same(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	before, err := membersOf(a)
	if err != nil {
		return false
	}
	after, err := membersOf(b)
	if err != nil || len(before) != len(after) {
		return false
	}
	inBefore := places{of: before}
	for i, m := range after {
		at, there := inBefore.find(m.name, i)
		if !there || before[at].value != m.value && !sameValue(before[at].value, m.value) {
			return false
		}
	}
	return true
}

func sameValue(a, b string) bool {
	var values [2]any
	for i, text := range []string{a, b} {
		decoder := json.NewDecoder(strings.NewReader(text))
		decoder.UseNumber()
		if err := decoder.Decode(&values[i]); err != nil {
			return false
		}
	}
	return reflect.DeepEqual(values[0], values[1])
}
