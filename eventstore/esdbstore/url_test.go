package esdbstore

import (
	"strings"
	"testing"
)

func TestConnectionStrings(t *testing.T) {
	for text, want := range map[string]struct {
		address, user, password string
		seeds                   int
		discover, insecure      bool
	}{
		"esdb://localhost":                                          {address: "localhost:2113"},
		"kurrentdb://db:2200?tls=false":                             {address: "db:2200", insecure: true},
		"KurrentDB://db":                                            {address: "db:2113"},
		"esdb+discover://cluster.example":                           {address: "cluster.example:2113", discover: true},
		"kurrentdb+discover://u:p@cluster.example":                  {address: "cluster.example:2113", user: "u", password: "p", discover: true},
		"kurrentdb://a:1,b:2,c:3?tls=false":                         {seeds: 3, insecure: true},
		"esdb://ad%40min:p%2F%3A%3F%23%25@a,b?keepAliveInterval=-1": {user: "ad@min", password: "p/:?#%", seeds: 2},
	} {
		c, err := parseURL(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got := want
		got.address, got.user, got.password = c.Address, c.Username, c.Password
		got.seeds, got.discover, got.insecure = len(c.GossipSeeds), c.DnsDiscover, c.DisableTLS
		if got != want {
			t.Errorf("%s: got %+v, want %+v", text, got, want)
		}
	}
}

func TestNoErrorQuotesThePassword(t *testing.T) {
	for _, text := range []string{
		"esdb:admin:hunter2@host", "postgres://admin:hunter2@host", "esdb://admin:hunter2@",
		"esdb://admin:hunter2@host:port", "esdb://admin:hunter2/x@host", "esdb://admin:hunter2?x@host",
		"esdb://admin:hunter2%zz@host", "esdb://admin:hunter2@host/path", "esdb://admin:hunter2@a,,b",
		"esdb://admin:hunter2@host?tls=perhaps", "esdb://admin:hunter2@host?tlsCAFile=/none",
		"esdb://admin:hunter2@host?userCertFile=/none", "esdb://admin:hunter2@ho st",
	} {
		if c, err := parseURL(text); err == nil {
			t.Errorf("%s was read as %+v", text, c)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error quotes the password: %v", err)
		}
	}
}
