package cli

import (
	"bytes"
	"testing"
)

func TestAnEmptyListingIsAnEmptyArrayOfJSON(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	list := newListing(&out, true)
	if err := list.end(); err != nil || out.String() != "[]\n" {
		t.Errorf("%v: %q", err, &out)
	}
}
