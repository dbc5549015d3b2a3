package cli

import (
	"reflect"
	"testing"

	"kindred/httpapi"
)

func TestATerminalIsShownStatesOfEveryKind(t *testing.T) {
	t.Parallel()
	for i := range reflect.TypeFor[httpapi.HistoryStateItem]().NumField() {
		var item httpapi.HistoryStateItem
		field := reflect.ValueOf(&item).Elem().Field(i)
		field.Set(reflect.New(field.Type().Elem()))
		if row := stateRow(item); len(row) < 3 {
			t.Errorf("of %s it is shown %q", field.Type(), row)
		}
	}
}
