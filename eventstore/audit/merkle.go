// Package audit proves what a log holds. The events of a client, in the order
// of the log, are the leaves of a Merkle tree (RFC 9162, section 2.1); a signed
// head of that tree commits to every one of them: whoever keeps a head can
// tell later whether any event before it was changed, dropped, added or moved.
package audit

import (
	"crypto/sha256"
	"errors"
	"math/bits"
)

// Hash is a hash of the tree, or of an event.
type Hash [32]byte

// Leaf is the hash of a leaf, which is the hash of an event
// (eventstore.Hash): SHA-256 over 0x00 and its 32 bytes.
func Leaf(event Hash) Hash {
	return sha256.Sum256(append([]byte{0}, event[:]...))
}

// node is the hash of an inner node: SHA-256 over 0x01, left and right.
func node(left, right Hash) Hash {
	var joined [65]byte
	joined[0] = 1
	copy(joined[1:], left[:])
	copy(joined[33:], right[:])
	return sha256.Sum256(joined[:])
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
		h = node(t.Peaks[len(t.Peaks)-1], h)
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
		root = node(t.Peaks[i], root)
	}
	return root
}

// Subtree joins the complete subtrees of one level, a power of two of them.
type Subtree struct{ Tree }

// Append adds the next subtree's root.
func (s *Subtree) Append(root Hash) { s.add(root, nil) }

// Nodes looks up complete subtrees: level 0 are the leaves.
type Nodes func(level int, index int64) Hash

// RootAt is the root of the first size leaves, size > 0.
func RootAt(nodes Nodes, size int64) Hash { return subtree(nodes, 0, size) }

// subtree is the hash over the leaves from a to before b, where a is a
// multiple of the largest power of two below b - a.
func subtree(nodes Nodes, a, b int64) Hash {
	if n := b - a; n&(n-1) == 0 {
		level := bits.TrailingZeros64(uint64(n))
		return nodes(level, a>>level)
	}
	k := split(b - a)
	return node(subtree(nodes, a, a+k), subtree(nodes, a+k, b))
}

// split is the largest power of two below n.
func split(n int64) int64 { return 1 << (bits.Len64(uint64(n-1)) - 1) }

// Inclusion proves that a leaf is among the first size (RFC 9162, 2.1.3.1).
func Inclusion(nodes Nodes, leaf, size int64) []Hash {
	return path(nodes, leaf, 0, size)
}

func path(nodes Nodes, leaf, a, b int64) []Hash {
	if b-a == 1 {
		return nil
	}
	if k := split(b - a); leaf < a+k {
		return append(path(nodes, leaf, a, a+k), subtree(nodes, a+k, b))
	} else {
		return append(path(nodes, leaf, a+k, b), subtree(nodes, a, a+k))
	}
}

// Consistency proves that the tree of from leaves is the beginning of the tree
// of size leaves, 0 < from <= size (RFC 9162, 2.1.4.1).
func Consistency(nodes Nodes, from, size int64) []Hash {
	if from == size {
		return nil
	}
	return beginning(nodes, from, 0, size, true)
}

func beginning(nodes Nodes, from, a, b int64, whole bool) []Hash {
	if from == b {
		if whole {
			return nil
		}
		return []Hash{subtree(nodes, a, b)}
	}
	if k := split(b - a); from <= a+k {
		return append(beginning(nodes, from, a, a+k, whole), subtree(nodes, a+k, b))
	} else {
		return append(beginning(nodes, from, a+k, b, false), subtree(nodes, a, a+k))
	}
}

// ErrProof: a proof does not prove it.
var ErrProof = errors.New("the proof does not hold")

// CheckInclusion verifies a proof of Inclusion (RFC 9162, 2.1.3.2).
func CheckInclusion(event Hash, leaf, size int64, proof []Hash, root Hash) error {
	if leaf < 0 || leaf >= size {
		return ErrProof
	}
	fn, sn, r := leaf, size-1, Leaf(event)
	for _, p := range proof {
		switch {
		case sn == 0:
			return ErrProof
		case fn&1 == 1 || fn == sn:
			r = node(p, r)
			for fn&1 == 0 && fn != 0 {
				fn, sn = fn>>1, sn>>1
			}
		default:
			r = node(r, p)
		}
		fn, sn = fn>>1, sn>>1
	}
	if sn != 0 || r != root {
		return ErrProof
	}
	return nil
}

// CheckConsistency verifies a proof of Consistency (RFC 9162, 2.1.4.2).
func CheckConsistency(from, size int64, proof []Hash, first, second Hash) error {
	switch {
	case from <= 0 || from > size:
		return ErrProof
	case from == size:
		if len(proof) > 0 || first != second {
			return ErrProof
		}
		return nil
	case from&(from-1) == 0:
		proof = append([]Hash{first}, proof...)
	}
	if len(proof) == 0 {
		return ErrProof
	}
	fn, sn := from-1, size-1
	for fn&1 == 1 {
		fn, sn = fn>>1, sn>>1
	}
	fr, sr := proof[0], proof[0]
	for _, c := range proof[1:] {
		switch {
		case sn == 0:
			return ErrProof
		case fn&1 == 1 || fn == sn:
			fr, sr = node(c, fr), node(c, sr)
			for fn&1 == 0 && fn != 0 {
				fn, sn = fn>>1, sn>>1
			}
		default:
			sr = node(sr, c)
		}
		fn, sn = fn>>1, sn>>1
	}
	if sn != 0 || fr != first || sr != second {
		return ErrProof
	}
	return nil
}
