package audit_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"testing"

	"kindred/eventstore/audit"
)

// reference is the tree as RFC 9162, section 2.1.1, defines it.
func reference(events []audit.Hash) audit.Hash {
	switch n := len(events); n {
	case 0:
		return sha256.Sum256(nil)
	case 1:
		return sha256.Sum256(append([]byte{0}, events[0][:]...))
	default:
		k := 1
		for 2*k < n {
			k *= 2
		}
		left, right := reference(events[:k]), reference(events[k:])
		return sha256.Sum256(append(append([]byte{1}, left[:]...), right[:]...))
	}
}

func leaves(n int) []audit.Hash {
	events := make([]audit.Hash, n)
	for i := range events {
		events[i] = sha256.Sum256(fmt.Appendf(nil, "event %d", i))
	}
	return events
}

// grown is a tree with all its complete nodes.
func grown(events []audit.Hash) (audit.Tree, audit.Nodes) {
	var tree audit.Tree
	nodes := map[[2]int64]audit.Hash{}
	for i, e := range events {
		nodes[[2]int64{0, int64(i)}] = audit.Leaf(e)
		tree.Append(e, func(level int, index int64, h audit.Hash) { nodes[[2]int64{int64(level), index}] = h })
	}
	return tree, func(level int, index int64) audit.Hash {
		h, found := nodes[[2]int64{int64(level), index}]
		if !found {
			panic(fmt.Sprintf("node %d of level %d is not complete", index, level))
		}
		return h
	}
}

func TestTheEmptyTreeAndOneLeaf(t *testing.T) {
	var tree audit.Tree
	if got := tree.Root(); hex.EncodeToString(got[:]) != "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" {
		t.Errorf("%x", got)
	}
	leaf := audit.Leaf(audit.Hash{})
	if hex.EncodeToString(leaf[:]) != "7f9c9e31ac8256ca2f258583df262dbc7d6f68f2a03043d5c99a4ae5a7396ce9" {
		t.Errorf("%x", leaf)
	}
}

func TestEveryProofHoldsAndNoOther(t *testing.T) {
	events := leaves(70)
	_, nodes := grown(events)
	roots := make([]audit.Hash, len(events)+1)
	for size := range roots {
		roots[size] = reference(events[:size])
		tree, _ := grown(events[:size])
		if tree.Root() != roots[size] {
			t.Fatalf("the root of %d leaves differs from the definition", size)
		}
		if size > 0 && audit.RootAt(nodes, int64(size)) != roots[size] {
			t.Fatalf("the root at %d differs", size)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for size := int64(1); size <= int64(len(events)); size++ {
		for i := range size {
			proof := audit.Inclusion(nodes, i, size)
			if err := audit.CheckInclusion(events[i], i, size, proof, roots[size]); err != nil {
				t.Fatalf("leaf %d of %d: %v", i, size, err)
			}
			other := events[(i+1)%int64(len(events))]
			if audit.CheckInclusion(other, i, size, proof, roots[size]) == nil {
				t.Fatalf("another event is proven as leaf %d of %d", i, size)
			}
			if size > 1 && audit.CheckInclusion(events[i], (i+1)%size, size, proof, roots[size]) == nil {
				t.Fatalf("leaf %d of %d is proven elsewhere", i, size)
			}

			from := i + 1
			proof = audit.Consistency(nodes, from, size)
			if err := audit.CheckConsistency(from, size, proof, roots[from], roots[size]); err != nil {
				t.Fatalf("%d to %d: %v", from, size, err)
			}
			if from == size {
				continue
			}
			bad := append([]audit.Hash(nil), proof...)
			bad[random.IntN(len(bad))][random.IntN(32)] ^= 1
			for what, err := range map[string]error{
				"a changed proof":    audit.CheckConsistency(from, size, bad, roots[from], roots[size]),
				"another beginning":  audit.CheckConsistency(from, size, proof, audit.Hash{}, roots[size]),
				"another end":        audit.CheckConsistency(from, size, proof, roots[from], audit.Hash{}),
				"a shortened proof":  audit.CheckConsistency(from, size, proof[1:], roots[from], roots[size]),
				"a lengthened proof": audit.CheckConsistency(from, size, append(proof, audit.Hash{}), roots[from], roots[size]),
			} {
				if err == nil {
					t.Fatalf("%d to %d: %s holds", from, size, what)
				}
			}
		}
	}
}
