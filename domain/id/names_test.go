package id_test

import (
	"fmt"
	"testing"

	"kindred/domain/id"
	"kindred/golden"
)

func TestPrefixesAndDerivedIdentifiersStay(t *testing.T) {
	lines := []string{}
	for _, one := range append(kinds([16]byte{7}), string(id.From[id.Impression]([16]byte{7})), string(id.From[id.Rebuild]([16]byte{7})),
		string(id.From[id.WebhookKey]([16]byte{7}))) {
		lines = append(lines, "of 16 bytes: "+one)
	}
	source := id.Derived("client", "route", "key")
	for i := range 3 {
		lines = append(lines, fmt.Sprintf("derived from client, route, key: %d %s", i, id.Next[id.Event](source)))
	}
	golden.Check(t, "ids.txt", lines)
}
