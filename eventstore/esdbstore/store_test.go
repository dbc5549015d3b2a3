package esdbstore_test

import (
	"os"
	"testing"

	"kindred/eventstore"
	"kindred/eventstore/esdbstore"
	"kindred/eventstore/esdbstore/esdbtest"
	"kindred/eventstore/eventstoretest"
)

// realURL names the server that the suite runs against beside the played one.
const realURL = "KINDRED_TEST_ESDB_URL"

func open(t testing.TB, url string, o esdbstore.Options) *esdbstore.Store {
	t.Helper()
	s, err := esdbstore.Open(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func another(url string) func(testing.TB) eventstore.Store {
	return func(t testing.TB) eventstore.Store { return open(t, url, esdbstore.Options{}) }
}

func TestConformanceOfOneNode(t *testing.T) {
	eventstoretest.Run(t, func(t testing.TB) eventstoretest.Harness {
		server := esdbtest.Start(t)
		return eventstoretest.Harness{
			Store:   open(t, server.URL(), esdbstore.Options{}),
			Another: another(server.URL()),
			Cut:     func(testing.TB) { server.Cut() },
			Restart: func(t testing.TB) { server.Kill(0); server.Return(t, 0) },
		}
	})
}

// Here the leader changes whenever a connection is cut or a node dies.
func TestConformanceOfACluster(t *testing.T) {
	eventstoretest.Run(t, func(t testing.TB) eventstoretest.Harness {
		server := esdbtest.StartCluster(t, 3)
		return eventstoretest.Harness{
			Store:   open(t, server.URL(), esdbstore.Options{}),
			Another: another(server.URL()),
			Cut:     func(testing.TB) { server.Elect((server.Leader() + 1) % 3); server.Cut() },
			Restart: func(t testing.TB) {
				dead := server.Leader()
				server.Kill(dead)
				server.Elect((dead + 1) % 3)
				t.Cleanup(func() { server.Return(t, dead) })
			},
		}
	})
}

func TestConformanceOfARealServer(t *testing.T) {
	url := os.Getenv(realURL)
	if url == "" {
		t.Skipf("%s names no EventStoreDB or KurrentDB server", realURL)
	}
	eventstoretest.Run(t, func(t testing.TB) eventstoretest.Harness {
		return eventstoretest.Harness{Store: open(t, url, esdbstore.Options{}), Another: another(url), Shared: true}
	})
}
