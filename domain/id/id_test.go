package id_test

import (
	"bytes"
	"crypto/rand"
	"slices"
	"strings"
	"testing"
	"testing/quick"

	"kindred/domain/id"
)

func TestAnIdentifierSurvivesTheRoundTrip(t *testing.T) {
	if err := quick.Check(func(raw [16]byte) bool {
		v := id.From[id.User](raw)
		back, err := id.Bytes(v)
		parsed, parseErr := id.Parse[id.User](string(v))
		return err == nil && parseErr == nil && back == raw && parsed == v && len(v) == 30 && strings.HasPrefix(string(v), "usr_")
	}, nil); err != nil {
		t.Error(err)
	}
}

func TestTextOrderIsByteOrder(t *testing.T) {
	if err := quick.Check(func(a, b [16]byte) bool {
		return bytes.Compare(a[:], b[:]) == strings.Compare(string(id.From[id.Event](a)), string(id.From[id.Event](b)))
	}, nil); err != nil {
		t.Error(err)
	}
}

func TestTextIsAnIdentifierInOneFormOnly(t *testing.T) {
	if err := quick.Check(func(text string) bool {
		v, err := id.Parse[id.User]("usr_" + text)
		return err != nil || string(v) == "usr_"+text
	}, nil); err != nil {
		t.Error(err)
	}
	right := string(id.From[id.User]([16]byte{1, 2, 3}))
	for _, wrong := range []string{
		"", "usr_", right[:29], right + "0", " " + right, strings.ToUpper(right), "cli_" + right[4:], right[4:],
		right[:29] + "1", // a bit beyond the 16 bytes
		right[:10] + "\n" + right[11:], right[:28] + "\r\n", right[:10] + "w" + right[11:],
		strings.Repeat("x", 10_000),
	} {
		_, err := id.Parse[id.User](wrong)
		if err == nil {
			t.Errorf("%q is taken for a user", wrong)
		} else if len(err.Error()) > 200 {
			t.Errorf("the error quotes %d bytes", len(err.Error()))
		}
	}
}

func kinds(raw [16]byte) []string {
	return []string{
		string(id.From[id.Client](raw)), string(id.From[id.Member](raw)), string(id.From[id.Key](raw)),
		string(id.From[id.User](raw)), string(id.From[id.Webhook](raw)), string(id.From[id.ConsentLayer](raw)),
		string(id.From[id.Run](raw)), string(id.From[id.Cluster](raw)), string(id.From[id.Campaign](raw)),
		string(id.From[id.Delivery](raw)), string(id.From[id.Event](raw)), string(id.From[id.Import](raw)),
		string(id.From[id.Request](raw)),
	}
}

func TestNoIdentifierIsTakenForOneOfAnotherKind(t *testing.T) {
	all := kinds([16]byte{7})
	for _, v := range all {
		if _, err := id.Parse[id.Client](v); (err == nil) != (v == all[0]) {
			t.Errorf("%s as a client: %v", v, err)
		}
	}
	prefixes := map[string]bool{}
	for _, v := range all {
		prefixes[v[:4]] = true
	}
	if len(prefixes) != len(all) {
		t.Errorf("%d kinds have %d prefixes", len(all), len(prefixes))
	}
}

func take(s *id.Source, n int) (ids []id.Event) {
	for range n {
		ids = append(ids, id.Next[id.Event](s))
	}
	return ids
}

func TestDerivedIdentifiersAreAlwaysTheSame(t *testing.T) {
	if err := quick.Check(func(parts []string) bool {
		first, again := take(id.Derived(parts...), 5), take(id.Derived(parts...), 5)
		distinct := slices.Compact(slices.Sorted(slices.Values(first)))
		return slices.Equal(first, again) && len(distinct) == 5
	}, nil); err != nil {
		t.Error(err)
	}
	// Known answer: events that were recorded are found again by these.
	if got := id.Next[id.Event](id.Derived("client", "route", "key")); got != "evt_s60sil9rgq16b1kltfh1k190j8" {
		t.Errorf("derived %s", got)
	}
}

func TestDerivedIdentifiersTellWherePartsEnd(t *testing.T) {
	seen := map[id.Event][]string{}
	for _, parts := range [][]string{nil, {""}, {"", ""}, {"ab"}, {"a", "b"}, {"", "ab"}, {"ab", ""}, {"b", "a"}} {
		v := id.Next[id.Event](id.Derived(parts...))
		if other, twice := seen[v]; twice {
			t.Errorf("%q and %q give %s", parts, other, v)
		}
		seen[v] = parts
	}
}

func TestIdentifiersAreUUIDs(t *testing.T) {
	for version, source := range map[byte]*id.Source{4: id.Random(rand.Reader), 8: id.Derived("x")} {
		for _, v := range take(source, 100) {
			raw, err := id.Bytes(v)
			if err != nil || raw[6]>>4 != version || raw[8]>>6 != 0b10 {
				t.Fatalf("%s (%x) is no UUID of version %d: %v", v, raw, version, err)
			}
		}
	}
}

func TestRandomIdentifiersDiffer(t *testing.T) {
	ids := take(id.Random(rand.Reader), 1000)
	if n := len(slices.Compact(slices.Sorted(slices.Values(ids)))); n != 1000 {
		t.Errorf("%d of 1000 differ", n)
	}
}

func TestSandboxesAndTheirClientHaveOneOwner(t *testing.T) {
	source := id.Random(rand.Reader)
	client, other := id.Next[id.Client](source), id.Next[id.Client](source)
	one, two := id.NextSandbox(source, client), id.NextSandbox(source, client)
	if one == two || !one.Sandbox() || client.Sandbox() || one.Owner() != client.Owner() || two.Owner() != client.Owner() || other.Owner() == client.Owner() {
		t.Errorf("%s has %s and %s, beside %s", client, one, two, other)
	}
	if _, err := id.Parse[id.Client](string(one)); err != nil {
		t.Error(err)
	}
}
