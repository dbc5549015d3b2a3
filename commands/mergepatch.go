package commands

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
)

// mergePatch applies a merge patch (RFC 7396) to a document; both are JSON objects. Names keep
// their order, and what a list holds is not looked into. It fails where one is no object.
func mergePatch(document, patch json.RawMessage) (json.RawMessage, error) {
	merged, err := members(document)
	if err != nil {
		return nil, err
	}
	changes, err := members(patch)
	if err != nil {
		return nil, err
	}
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
		case string(change.value) == "null":
			change.value = nil
		case isObject(change.value):
			under := merged[i].value
			if !isObject(under) {
				under = json.RawMessage(`{}`)
			}
			if change.value, err = mergePatch(under, change.value); err != nil {
				return nil, err
			}
		}
		merged[i].value = change.value
	}
	return object(merged)
}

// member is one of an object's; without a value it is gone.
type member struct {
	name  string
	value json.RawMessage
}

func isObject(value []byte) bool { return bytes.HasPrefix(value, []byte("{")) }

// members are those of an object, in their order.
func members(text []byte) (all []member, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	if begin, err := decoder.Token(); err != nil || begin != json.Delim('{') {
		return nil, errors.Join(errNoObject, err)
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		m := member{name: name.(string)} // or it were no JSON
		if err := decoder.Decode(&m.value); err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	_, err = decoder.Token()
	return all, err
}

var errNoObject = errors.New("no JSON object")

func object(members []member) (json.RawMessage, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	out.WriteByte('{')
	for _, m := range members {
		if m.value == nil {
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
		out.Write(m.value)
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// sameJSON says whether two texts hold the same, in whatever order names stand.
func sameJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var values [2]any
	for i, text := range [][]byte{a, b} {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		if err := decoder.Decode(&values[i]); err != nil {
			return false
		}
	}
	return reflect.DeepEqual(values[0], values[1])
}
