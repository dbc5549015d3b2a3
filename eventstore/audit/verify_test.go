package audit_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"testing"

	"kindred/eventstore/audit"
)

func TestLineEndsAreNoPartOfAnExport(t *testing.T) {
	key, err := audit.NewKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := key.Public()
	if err != nil {
		t.Fatal(err)
	}
	keys, err := audit.ParseKeys(fmt.Appendf(nil, `{"keys":[%s]}`, public))
	if err != nil {
		t.Fatal(err)
	}
	export := append([]byte("\n \n"), written(t, key, 3)...)
	export = bytes.ReplaceAll(export, []byte("\n"), []byte("\r\n"))
	find := func(export []byte) (found []audit.Finding) {
		if _, err := audit.Verify(bytes.NewReader(export), keys, nil, func(f audit.Finding) { found = append(found, f) }); err != nil {
			t.Fatal(err)
		}
		return found
	}
	if found := find(export); len(found) > 0 {
		t.Errorf("%v", found)
	}
	if found := find(bytes.Replace(export, []byte(`"ordinal":1`), []byte(`"ordinal":7`), 1)); len(found) == 0 || found[0].Line != 4 {
		t.Errorf("what is wrong in line 4: %v", found)
	}
}
