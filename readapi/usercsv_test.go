package readapi

import (
	"encoding/json"
	"slices"
	"testing"

	"kindred/domain/fault"
)

func TestATraitThatComesWhileUsersAreWrittenIsNoFailure(t *testing.T) {
	record, index := []string{"u1", "of another"}, map[string]int{"age": 1}
	err := fill(record, index, map[string]json.RawMessage{"age": json.RawMessage(`4`), "plan": json.RawMessage(`"pro"`)})
	if f := fault.As(err); f == nil || f.Code != "busy" || f.RetryAfter == 0 {
		t.Errorf("got %v", err)
	}
	if err := fill(record, index, nil); err != nil || !slices.Equal(record, []string{"u1", ""}) {
		t.Errorf("got %q, %v", record, err)
	}
}
