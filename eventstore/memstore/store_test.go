package memstore_test

import (
	"crypto/rand"
	"testing"

	"kindred/eventstore/eventstoretest"
	"kindred/eventstore/memstore"
)

func TestConformance(t *testing.T) {
	eventstoretest.Run(t, func(testing.TB) eventstoretest.Harness {
		return eventstoretest.Harness{Store: memstore.New(rand.Text())}
	})
}
