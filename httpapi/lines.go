package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/getkin/kin-openapi/openapi3"

	"kindred/domain/fault"
)

// UserLines reads the lines of an import by the rules for the body of
// POST /api/v1/users.
type UserLines struct{ schema *openapi3.Schema }

// NewUserLines makes a reader for any number of goroutines. It panics when the
// contract that was built into it is broken.
func NewUserLines() UserLines {
	return UserLines{must(loadContract()).Components.Schemas["NewUser"].Value}
}

// Decode reads one line, and keeps it. Refusals are faults, as for a body.
// Faults: invalid, invalid_csv, invalid_json, json_too_deep, too_many_values.
func (l UserLines) Decode(line []byte) (NewUser, error) {
	u, err := l.decode(line)
	if refused := fault.As(err); refused != nil {
		switch {
		case bytes.HasPrefix(line, []byte("[")):
			refused.Detail = "The line begins a list of JSON. " + insteadOfList
		case string(bytes.TrimSpace(line)) == "{":
			refused.Detail = "The line begins an object that goes on in the next ones. Write each object in one line: jq -c . makes that of it."
		}
	}
	return u, err
}

const insteadOfList = "Write one object a line, without brackets around all or commas between: jq -c '.[]' makes that of a list."

func (l UserLines) decode(line []byte) (NewUser, error) {
	if len(line) > 0 && line[0] == refusedRecord {
		return NewUser{}, badCSV("The record cannot be read: %s.", line[1:])
	}
	told := checkJSON(line)
	if told == nil {
		if u, ok := plainUser(line); ok {
			return u, nil
		}
	}
	return l.bySchema(line, told)
}

func (l UserLines) bySchema(line []byte, told error) (u NewUser, err error) {
	if err := validateBody(l.schema, line, told); err != nil {
		return u, err
	}
	if err := json.Unmarshal(line, &u); err != nil {
		return u, fmt.Errorf("decode a user: %w", err)
	}
	return u, nil
}
