package audit_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	jose "github.com/go-jose/go-jose/v4"

	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/audit"
	"kindred/testkit"
)

func TestLineEndsAreNoPartOfAnExport(t *testing.T) {
	key := testkit.Must(audit.NewKey(rand.Reader))(t)
	public := testkit.Must(key.Public())(t)
	keys := testkit.Must(audit.ParseKeys(fmt.Appendf(nil, `{"keys":[%s]}`, public)))(t)
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
	if found := find(bytes.Replace(export, []byte(`"ordinal":1`), []byte(`"ordinal":7`), 1)); len(found) == 0 || found[0].Line != 4 || found[0].Ordinal != 7 || found[0].Event == "" {
		t.Errorf("what is wrong in line 4: %v", found)
	}
	long := slices.Concat([]byte("\n"), bytes.Repeat([]byte("x"), 5<<20))
	if _, err := audit.Verify(bytes.NewReader(long), keys, nil, nil); err == nil || !strings.Contains(err.Error(), "line 2: longer than the 4 MiB") {
		t.Errorf("of a line that is too long it says %v", err)
	}
}

// forged are the events of an export by somebody who can sign: each hash, chain and root
// is right again after a change.
type forged struct {
	t      *testing.T
	seed   []byte
	key    audit.Key
	keys   audit.Keys
	client id.Client
	events []audit.Event
}

func forge(t *testing.T) *forged {
	t.Helper()
	f := &forged{t: t, seed: bytes.Repeat([]byte{7}, ed25519.SeedSize), client: id.Next[id.Client](id.Random(rand.Reader))}
	key, err := audit.KeyFromSeed(f.seed)
	if err != nil {
		t.Fatal(err)
	}
	public := testkit.Must(key.Public())(t)
	f.key = key
	if f.keys, err = audit.ParseKeys(fmt.Appendf(nil, `{"keys":[%s]}`, public)); err != nil {
		t.Fatal(err)
	}
	last := map[eventstore.Stream]audit.Event{}
	for n, stream := range []eventstore.Stream{"a", "a", "b", "a"} {
		ordinal := int64(n)
		meta := eventstore.Meta{
			Client: f.client, Version: 1, RecordedAt: time.Date(2026, 3, 1, 12, 0, n, 0, time.UTC), Actor: "mem_1", Correlation: "req_1",
		}
		before, follows := last[stream]
		if follows {
			meta.Previous = hex.EncodeToString(before.Hash[:])
		}
		revision := eventstore.Revision(0)
		if follows {
			revision = before.Revision + 1
		}
		envelope := testkit.Must(json.Marshal(meta))(t)
		e := audit.NewEvent(eventstore.Record{Stream: stream, Revision: revision, Position: "0000000000000007", Proposed: eventstore.Proposed{
			ID: id.Next[id.Event](id.Random(rand.Reader)), Type: "some.thing", Version: 1, RecordedAt: meta.RecordedAt, Data: []byte("{}"), Meta: envelope,
		}}, &ordinal, audit.Hash{})
		f.events = append(f.events, e)
		f.rehash(n)
		last[stream] = f.events[n]
	}
	return f
}

// rehash makes the hash of an event right.
func (f *forged) rehash(n int) {
	f.t.Helper()
	hash, err := f.events[n].Recompute()
	if err != nil {
		f.t.Fatal(err)
	}
	f.events[n].Hash = hash
}

// claims has the last two events be of a claim, at revisions between which others' events may stand.
func (f *forged) claims(first, second eventstore.Revision) {
	f.t.Helper()
	for n, revision := range map[int]eventstore.Revision{2: first, 3: second} {
		e := &f.events[n]
		e.Stream, e.Revision = eventstore.ClaimStream(eventstore.EmailClaim, [32]byte{7}), revision
		var meta eventstore.Meta
		if err := json.Unmarshal([]byte(e.Meta), &meta); err != nil {
			f.t.Fatal(err)
		}
		meta.Previous = strings.Repeat("0", 64)
		e.Meta = string(testkit.Must(json.Marshal(meta))(f.t))
		f.rehash(n)
	}
}

func (f *forged) head(client id.Client, events int) string {
	f.t.Helper()
	var tree audit.Tree
	for _, e := range f.events[:events] {
		if hash, err := e.Recompute(); err == nil {
			e.Hash = hash
		}
		tree.Append(e.Hash, nil)
	}
	jws, err := f.key.Sign(audit.Head{Client: client, Size: tree.Size, Root: tree.Root()})
	if err != nil {
		f.t.Fatal(err)
	}
	return jws
}

// lines are those of the events, without a head.
func (f *forged) lines() string {
	f.t.Helper()
	var out bytes.Buffer
	w := audit.NewWriter(&out)
	for _, e := range f.events {
		if err := w.Event(e); err != nil {
			f.t.Fatal(err)
		}
	}
	return out.String()
}

func headLine(jws string) string { return fmt.Sprintf("{\"head\":%q}\n", jws) }

func TestEachRuleFindsAloneWhatBreaksIt(t *testing.T) {
	const shown, taken = "what is shown of it is not what its envelope says", "events are missing, or too many"
	stranger := id.Next[id.Client](id.Random(rand.Reader))
	ends := func(f *forged) string { return f.lines() + headLine(f.head(f.client, len(f.events))) }
	after := func(change func(f *forged)) func(f *forged) (string, []string) {
		return func(f *forged) (string, []string) {
			change(f)
			return ends(f), nil
		}
	}
	replaced := func(old, by string) func(f *forged) (string, []string) {
		return func(f *forged) (string, []string) { return strings.Replace(ends(f), old, by, 1), nil }
	}
	tests := map[string]struct {
		found  string // "": it is genuine
		export func(f *forged) (export string, kept []string)
	}{
		"nothing": {"", func(f *forged) (string, []string) {
			return ends(f), []string{f.head(f.client, 2), f.head(f.client, 4)}
		}},
		"nothing, in a long line": {"", after(func(f *forged) {
			f.events[2].Data = `{"a":"` + strings.Repeat("x", 200_000) + `"}`
			f.rehash(2)
		})},
		"nothing, of an address that was another's between": {"", after(func(f *forged) { f.claims(3, 9) })},
		"a claim of before":           {taken, after(func(f *forged) { f.claims(9, 3) })},
		"a claim that is there twice": {taken, after(func(f *forged) { f.claims(3, 3) })},
		"a claim after nothing": {taken, after(func(f *forged) {
			f.claims(3, 9)
			f.events[3].Meta = f.events[0].Meta
			f.rehash(3)
		})},
		"what stood before a claim, of the same history": {"is not what it was when this was recorded", after(func(f *forged) { f.claims(3, 4) })},
		"an ordinal":         {"out of order: 1 comes next", after(func(f *forged) { f.events[1].Ordinal = new(int64(7)) })},
		"a hash":             {"its hash is another", after(func(f *forged) { f.events[1].Hash = audit.Hash{} })},
		"an actor":           {shown, after(func(f *forged) { f.events[1].Actor = "mem_2" })},
		"a version":          {shown, after(func(f *forged) { f.events[1].Version = 2 })},
		"a time":             {shown, after(func(f *forged) { f.events[1].RecordedAt = f.events[0].RecordedAt })},
		"a cause":            {shown, after(func(f *forged) { f.events[1].Causation = f.events[0].ID })},
		"a correlation":      {shown, after(func(f *forged) { f.events[1].Correlation = "" })},
		"a text that quotes": {shown, after(func(f *forged) { f.events[1].Actor, f.events[1].Correlation = `mem_1","correlation":"req_1`, "" })},
		"a text that escapes": {shown, after(func(f *forged) {
			f.events[2].Actor, f.events[2].Meta = `mem_\u0031`, strings.Replace(f.events[2].Meta, "mem_1", `mem_\u0031`, 1)
			f.rehash(2)
		})},
		"a client's event in another's history": {shown, after(func(f *forged) {
			f.events[2].Meta = strings.Replace(f.events[2].Meta, string(f.client), string(stranger), 1)
			f.rehash(2)
		})},
		"a revision": {taken, after(func(f *forged) {
			f.events[3].Revision = 5
			f.rehash(3)
		})},
		"the event before": {"is not what it was when this was recorded", after(func(f *forged) {
			f.events[3].Meta = strings.Replace(f.events[3].Meta, hex.EncodeToString(f.events[1].Hash[:]), strings.Repeat("0", 64), 1)
			f.rehash(3)
		})},
		"an event that is lost": {"taken out of the log", after(func(f *forged) {
			f.events[2] = audit.Event{Ordinal: f.events[2].Ordinal, Hash: f.events[2].Hash, Missing: true}
		})},
		"an event that the history never had": {"it was inserted into the log", func(f *forged) (string, []string) {
			export := ends(f)
			inserted := f.events[2]
			inserted.Ordinal = nil
			f.events = []audit.Event{inserted}
			return f.lines() + export, nil
		}},
		"the spelling of an id": {"id", func(f *forged) (string, []string) {
			name := string(f.events[2].ID)
			const digits = "0123456789abcdefghijklmnopqrstuv"
			return strings.Replace(ends(f), name, name[:len(name)-1]+digits[strings.IndexByte(digits, name[len(name)-1])+1:][:1], 1), nil
		}},
		"a field that is unknown":      {"is not of an event", replaced(`"actor":`, `"Actor":"mem_2","actor":`)},
		"a field that is there twice":  {"is there twice", replaced(`"actor":`, `"actor":"mem_2","actor":`)},
		"a number that is a text":      {"no line of an export", replaced(`"version":1`, `"version":"1"`)},
		"a head beside something else": {"it is a signed head and an event", replaced(`{"head":`, `{"ordinal":null,"head":`)},
		"no head":                      {"does not end with a signed head", func(f *forged) (string, []string) { return f.lines(), nil }},
		"a head before an event": {"does not end with a signed head", func(f *forged) (string, []string) {
			lines := strings.SplitAfter(f.lines(), "\n")
			return strings.Join(lines[:3], "") + headLine(f.head(f.client, 3)) + lines[3], nil
		}},
		"a head of fewer events": {"the head commits to 3 events, but 4", func(f *forged) (string, []string) { return f.lines() + headLine(f.head(f.client, 3)), nil }},
		"a head of other events": {"not those that the head commits to", func(f *forged) (string, []string) { return f.lines() + headLine(forge(f.t).as(f.client)), nil }},
		"a head of another":      {"the head is of", func(f *forged) (string, []string) { return f.lines() + headLine(f.head(stranger, 4)), nil }},
		"a head that is no JWS":  {"it is no JWS", func(f *forged) (string, []string) { return f.lines() + headLine("nothing"), nil }},
		"what is no head":        {"of another type", func(f *forged) (string, []string) { return f.lines() + headLine(f.signedAs("JWT")), nil }},
		"a kept head of more": {"a head that was kept commits to 4 events, but there are 3", func(f *forged) (string, []string) {
			kept := f.head(f.client, 4)
			f.events = f.events[:3]
			return ends(f), []string{kept}
		}},
		"a kept head of others":  {"the head kept of", func(f *forged) (string, []string) { return ends(f), []string{forge(f.t).as(f.client)} }},
		"a kept head of another": {"the head that was kept is of", func(f *forged) (string, []string) { return ends(f), []string{f.head(stranger, 4)} }},
	}
	for _, number := range []string{"ordinal", "version", "revision"} {
		test := tests["a field that is there twice"]
		test.export = replaced(`"`+number+`":`, `"`+number+`":7,"`+number+`":`)
		tests["a number that is there twice: "+number] = test
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := forge(t)
			export, kept := test.export(f)
			var found []audit.Finding
			verified, err := audit.Verify(strings.NewReader(export), f.keys, kept, func(f audit.Finding) { found = append(found, f) })
			if err != nil || verified.Findings != int64(len(found)) {
				t.Fatalf("%d are counted of %v, %v", verified.Findings, found, err)
			}
			if n := int64(len(f.events)); test.found == "" && (len(found) > 0 || verified.Events != n || verified.Head.Size != n || verified.Client != f.client) {
				t.Errorf("found %v in %+v", found, verified)
			}
			if test.found != "" && (len(found) == 0 || !slices.ContainsFunc(found, func(f audit.Finding) bool { return strings.Contains(f.What, test.found) })) {
				t.Errorf("found %v, and not %q", found, test.found)
			}
		})
	}
}

// as is the head of all events, said to be of a client.
func (f *forged) as(client id.Client) string { return f.head(client, len(f.events)) }

// signedAs signs a right head as if it were something else.
func (f *forged) signedAs(kind jose.ContentType) string {
	f.t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{
		Algorithm: jose.EdDSA, Key: jose.JSONWebKey{Key: ed25519.NewKeyFromSeed(f.seed), KeyID: f.key.ID},
	}, (&jose.SignerOptions{}).WithType(kind))
	if err != nil {
		f.t.Fatal(err)
	}
	_, payload, _ := strings.Cut(f.as(f.client), ".")
	payload, _, _ = strings.Cut(payload, ".")
	plain, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		f.t.Fatal(err)
	}
	signed, err := signer.Sign(plain)
	if err != nil {
		f.t.Fatal(err)
	}
	jws, err := signed.CompactSerialize()
	if err != nil {
		f.t.Fatal(err)
	}
	return jws
}

// Who gives a head that was kept relies on it: one that nobody signed is not passed over.
func TestAHeadThatWasKeptHasToBeSigned(t *testing.T) {
	f := forge(t)
	export := f.lines() + headLine(f.head(f.client, 4))
	genuine := f.head(f.client, 4)
	for _, kept := range []string{"", "nothing", f.signedAs("JWT"), genuine[:len(genuine)-8] + "AAAAAAAA"} {
		if _, err := audit.Verify(strings.NewReader(export), f.keys, []string{genuine, kept}, func(audit.Finding) {}); !errors.Is(err, audit.ErrHead) {
			t.Errorf("a history is verified against %q: %v", kept, err)
		}
		if _, err := (audit.Proof{Head: genuine, FromSize: new(int64(4))}).Verify(f.keys, []string{genuine, kept}); !errors.Is(err, audit.ErrHead) {
			t.Errorf("a proof is verified against %q: %v", kept, err)
		}
	}
}
