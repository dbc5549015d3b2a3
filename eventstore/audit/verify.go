package audit

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"kindred/domain/id"
	"kindred/eventstore"
)

// Finding is something that is wrong with an export.
type Finding struct {
	Line    int64
	Ordinal int64    // -1 where no single event is meant
	Event   id.Event // "" likewise
	What    string
}

func (f Finding) String() string {
	if f.Event == "" {
		return fmt.Sprintf("line %d: %s", f.Line, f.What)
	}
	return fmt.Sprintf("line %d: event %d, %s: %s", f.Line, f.Ordinal, f.Event, f.What)
}

// Verified is what an export was found to be.
type Verified struct {
	Events   int64
	Client   id.Client
	Head     Head // the last one
	Findings int64
}

const (
	// limit: log | a line of an exported history that is verified | {maxLine B}
	maxLine = 4 << 20 // bytes; an event has at most half a MiB, which text may double
	// limit: log | heads that were kept outside, in a verification | {maxHeads}
	maxHeads = 10_000 // kept outside, of one client
)

var errTooLong = fmt.Errorf("longer than the %d MiB that a line of an export may have", maxLine>>20)

// Verify checks an export against the published audit keys, and against heads
// of the same client that were kept elsewhere. It tells found whatever is
// wrong, and fails only where the export cannot be read. It needs about a
// hundred bytes of memory for each stream.
func Verify(export io.Reader, keys Keys, kept []string, found func(Finding)) (Verified, error) {
	v := verifier{keys: keys, found: found, versions: map[[16]byte]streamVersion{}, kept: map[int64][]Head{}}
	if len(kept) > maxHeads {
		return Verified{}, fmt.Errorf("%d heads are given, %d are allowed", len(kept), maxHeads)
	}
	for _, jws := range kept {
		head, err := keys.Verify(jws)
		if err != nil {
			return Verified{}, fmt.Errorf("a head that was kept: %w", err)
		}
		v.kept[head.Size] = append(v.kept[head.Size], head)
		v.keptMost = max(v.keptMost, head.Size)
	}
	lines := bufio.NewReaderSize(export, 1<<16)
	var long []byte
	for {
		part, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) && len(long)+len(part) <= maxLine {
			long = append(long, part...)
			continue
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			err = fmt.Errorf("line %d: %w", v.at+1, errTooLong)
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return v.Verified, fmt.Errorf("read the export: %w", err)
		}
		text := part
		if len(long) > 0 {
			text = append(long, part...)
			long = long[:0]
		}
		if len(text) > 0 {
			v.at++
		}
		if text = bytes.TrimSpace(text); len(text) > 0 {
			v.line(text)
		}
		if err != nil {
			break
		}
	}
	v.end()
	return v.Verified, nil //nolint:nilerr // the end of the export is no failure
}

type streamVersion struct {
	revision eventstore.Revision
	hash     Hash
}

type verifier struct {
	Verified
	keys     Keys
	found    func(Finding)
	tree     Tree
	versions map[[16]byte]streamVersion
	kept     map[int64][]Head
	keptMost int64
	at       int64 // line
	headLast bool
}

func (v *verifier) tell(e *Event, format string, args ...any) {
	v.Findings++
	f := Finding{Line: v.at, Ordinal: -1, What: fmt.Sprintf(format, args...)}
	if e != nil {
		f.Event = e.ID
		if e.Ordinal != nil {
			f.Ordinal = *e.Ordinal
		}
	}
	v.found(f)
}

func (v *verifier) line(text []byte) {
	l, err := scan(text)
	if err != nil {
		v.tell(nil, "this is no line of an export: %v", err)
		v.headLast = false
		return
	}
	if l.Head != "" {
		v.head(l.Head)
		v.headLast = true
		return
	}
	v.headLast = false
	v.event(&l.Event)
}

func (v *verifier) head(jws string) {
	head, err := v.keys.Verify(jws)
	if err != nil {
		v.tell(nil, "%v", err)
		return
	}
	if v.Client == "" {
		v.Client = head.Client
	}
	switch {
	case head.Client != v.Client:
		v.tell(nil, "the head is of %s, the events are of %s", head.Client, v.Client)
	case head.Size != v.tree.Size:
		v.tell(nil, "the head commits to %d events, but %d stand before it", head.Size, v.tree.Size)
	case head.Root != v.tree.Root():
		v.tell(nil, "the first %d events are not those that the head commits to", head.Size)
	}
	v.Head = head
}

func (v *verifier) event(e *Event) {
	v.Events++
	if e.Ordinal == nil {
		v.tell(e, "the history does not know the event: it was inserted into the log")
		return
	}
	if *e.Ordinal != v.tree.Size {
		v.tell(e, "out of order: %d comes next", v.tree.Size)
	}
	if e.Missing {
		e.ID = "(unknown)"
		v.tell(e, "the event was taken out of the log")
		v.grow(e.Hash)
		return
	}
	hash, err := e.Recompute()
	if err != nil {
		v.tell(e, "%v", err)
	}
	if hash != e.Hash {
		v.tell(e, "the event was changed: its hash is another")
	}
	v.grow(hash)
	if v.Client == "" {
		if meta, err := eventstore.DecodeMeta([]byte(e.Meta)); err == nil {
			v.Client = meta.Client
		}
	}
	said, err := envelope(e, v.Client)
	switch {
	case err != nil:
		v.tell(e, "its envelope cannot be read")
	case !said.shown:
		v.tell(e, "what is shown of it is not what its envelope says")
	}
	v.chain(e, hash, said.Previous)
}

// grow adds an event to the tree, and compares with heads that were kept.
func (v *verifier) grow(hash Hash) {
	v.tree.Append(hash, nil)
	for _, head := range v.kept[v.tree.Size] {
		if v.Client != "" && head.Client != v.Client {
			v.tell(nil, "the head that was kept is of %s, the events are of %s", head.Client, v.Client)
		} else if head.Root != v.tree.Root() {
			v.tell(nil, "the first %d events are not those that the head kept of %s commits to",
				head.Size, head.SignedAt.Format("2006-01-02 15:04:05"))
		}
	}
}

// chain compares an event with the one before it in its stream.
func (v *verifier) chain(e *Event, hash Hash, previous string) {
	name := sha256.Sum256([]byte(e.Stream))
	key := [16]byte(name[:16])
	before, known := v.versions[key]
	if !known {
		before.revision = eventstore.NoStream
	}
	if e.Stream.Shared() && e.Revision > before.revision+1 && previous != "" {
		v.versions[key] = streamVersion{e.Revision, hash} // those between are in the histories of others
		return
	}
	if e.Revision != before.revision+1 {
		v.tell(e, "revision %d of %s follows revision %d: events are missing, or too many", e.Revision, e.Stream, before.revision)
	}
	want := ""
	if known {
		want = hex.EncodeToString(before.hash[:])
	}
	if previous != want {
		v.tell(e, "revision %d of %s, before it, is not what it was when this was recorded", before.revision, e.Stream)
	}
	v.versions[key] = streamVersion{e.Revision, hash}
}

func (v *verifier) end() {
	if !v.headLast {
		v.tell(nil, "the export does not end with a signed head")
	}
	if v.keptMost > v.tree.Size {
		v.tell(nil, "a head that was kept commits to %d events, but there are %d", v.keptMost, v.tree.Size)
	}
}
