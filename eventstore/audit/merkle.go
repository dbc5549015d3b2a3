// Package audit proves what a log holds. The events of a client, in the order
// of the log, are the leaves of a Merkle tree (RFC 9162, section 2.1); a signed
// head of that tree commits to every one of them: whoever keeps a head can
// tell later whether any event before it was changed, dropped, added or moved.
package audit

import (
	"crypto/sha256"

	"golang.org/x/mod/sumdb/tlog"
)

// Hash is a hash of the tree, or of an event.
type Hash [32]byte

// Leaf is the hash of a leaf, which is the hash of an event
// (eventstore.Hash): SHA-256 over 0x00 and its 32 bytes.
func Leaf(event Hash) Hash {
	return Hash(tlog.RecordHash(event[:]))
}

// Tree is a Merkle tree that grows, of which only the roots of its complete
// subtrees are kept: as many as Size has bits set. The zero value is empty.
type Tree struct {
	Size  int64
	Peaks []Hash // the largest subtree, and leftmost, first
}

// Append adds the leaf of an event. Completed, which may be nil, is told each
// inner node that is complete now: its level, 1 above the leaves, and its
// place among the nodes of that level.
func (t *Tree) Append(event Hash, completed func(level int, index int64, h Hash)) {
	t.add(Leaf(event), completed)
}

func (t *Tree) add(h Hash, completed func(level int, index int64, h Hash)) {
	for level := 1; t.Size>>(level-1)&1 == 1; level++ {
		h = Hash(tlog.NodeHash(tlog.Hash(t.Peaks[len(t.Peaks)-1]), tlog.Hash(h)))
		t.Peaks = t.Peaks[:len(t.Peaks)-1]
		if completed != nil {
			completed(level, t.Size>>level, h)
		}
	}
	t.Peaks = append(t.Peaks, h)
	t.Size++
}

// Root is the hash of the whole tree; that of the empty one is SHA-256 of
// nothing.
func (t *Tree) Root() Hash {
	if t.Size == 0 {
		return sha256.Sum256(nil)
	}
	root := t.Peaks[len(t.Peaks)-1]
	for i := len(t.Peaks) - 2; i >= 0; i-- {
		root = Hash(tlog.NodeHash(tlog.Hash(t.Peaks[i]), tlog.Hash(root)))
	}
	return root
}

// Subtree joins the complete subtrees of one level, a power of two of them.
type Subtree struct{ Tree }

// Append adds the next subtree's root.
func (s *Subtree) Append(root Hash) { s.add(root, nil) }

// Nodes looks up complete subtrees: level 0 are the leaves.
type Nodes func(level int, index int64) Hash

// ReadHashes implements [tlog.HashReader].
func (n Nodes) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	hashes := make([]tlog.Hash, len(indexes))
	for i, stored := range indexes {
		hashes[i] = tlog.Hash(n(tlog.SplitStoredHashIndex(stored)))
	}
	return hashes, nil
}

// RootAt is the root of the first size leaves, size > 0.
func RootAt(nodes Nodes, size int64) (Hash, error) {
	root, err := tlog.TreeHash(size, nodes)
	return Hash(root), err
}

// Inclusion proves that a leaf is among the first size (RFC 9162, 2.1.3.1).
func Inclusion(nodes Nodes, leaf, size int64) ([]Hash, error) {
	proof, err := tlog.ProveRecord(size, leaf, nodes)
	return convert[Hash](proof), err
}

// Consistency proves that the tree of from leaves is the beginning of the tree
// of size leaves, 0 < from <= size (RFC 9162, 2.1.4.1).
func Consistency(nodes Nodes, from, size int64) ([]Hash, error) {
	proof, err := tlog.ProveTree(size, from, nodes)
	return convert[Hash](proof), err
}

func convert[To, From ~[32]byte](hashes []From) []To {
	converted := make([]To, len(hashes))
	for i, h := range hashes {
		converted[i] = To(h)
	}
	return converted
}
