package audit

import (
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"kindred/domain/id"
)

// Proof is what GET history/proof answers.
type Proof struct {
	Head        string `json:"head"` // a JWS
	Size        *int64 `json:"size"` // what the head says, for those who do not open it
	Root        *Hash  `json:"root"` // the same
	Ordinal     *int64 `json:"ordinal"`
	Hash        Hash   `json:"hash"`        // of the event at Ordinal
	Inclusion   []Hash `json:"inclusion"`   // the path from there to the root
	FromSize    *int64 `json:"from_size"`   // of a tree that was seen before
	Consistency []Hash `json:"consistency"` // the path from there to the root
}

// Proven is what a proof was found to show.
type Proven struct {
	Head  Head
	Event *int64 // the ordinal of the event that is in the tree; nil: none was asked for
	Since *Head  // the head that the tree goes on from; nil: none was asked for
}

var (
	// ErrProof: a proof does not prove it.
	ErrProof = errors.New("the proof does not hold")
	// ErrNoHead: the earlier tree that consistency is claimed with is not that of the
	// largest head that was kept.
	ErrNoHead = errors.New("it shows no consistency with a head that was kept")
)

// Verify checks a proof against the published audit keys, without the history
// that it is about (RFC 9162, 2.1.3.2 and 2.1.4.2). kept are heads that were kept: with
// the largest of the same client it has to show consistency.
// It fails with ErrHead, ErrProof or ErrNoHead.
func (p Proof) Verify(keys Keys, kept []string) (Proven, error) {
	head, err := keys.Verify(p.Head)
	if err != nil {
		return Proven{}, err
	}
	if p.Size != nil && *p.Size != head.Size || p.Root != nil && *p.Root != head.Root {
		return Proven{}, fmt.Errorf("its size or root is not the signed head's: %w", ErrProof)
	}
	proven := Proven{Head: head}
	if p.Ordinal != nil {
		if err := tlog.CheckRecord(convert[tlog.Hash](p.Inclusion), head.Size, tlog.Hash(head.Root), *p.Ordinal, tlog.RecordHash(p.Hash[:])); err != nil {
			return Proven{}, fmt.Errorf("event %d: %w", *p.Ordinal, ErrProof)
		}
		proven.Event = p.Ordinal
	}
	if p.FromSize != nil || len(kept) > 0 {
		before, err := keys.newest(kept, head.Client)
		if err != nil {
			return Proven{}, err
		}
		if p.FromSize == nil || *p.FromSize != before.Size { // whoever answered chose what to leave out
			return Proven{}, fmt.Errorf("it does not go on from the head that was kept; ask for from_size=%d: %w", before.Size, ErrNoHead)
		}
		if err := tlog.CheckTree(convert[tlog.Hash](p.Consistency), head.Size, tlog.Hash(head.Root), before.Size, tlog.Hash(before.Root)); err != nil {
			return Proven{}, fmt.Errorf("the tree of %d events: %w", before.Size, ErrProof)
		}
		proven.Since = &before
	}
	return proven, nil
}

// newest returns the largest of the heads that were kept of a client.
func (k Keys) newest(kept []string, client id.Client) (largest Head, err error) {
	found := false
	for _, jws := range kept {
		head, err := k.Verify(jws)
		if err != nil {
			return Head{}, fmt.Errorf("a head that was kept: %w", err)
		}
		if head.Client == client && (!found || head.Size > largest.Size) {
			largest, found = head, true
		}
	}
	if !found {
		return Head{}, fmt.Errorf("consistency with an earlier history of %s cannot be checked: %w", client, ErrNoHead)
	}
	return largest, nil
}
