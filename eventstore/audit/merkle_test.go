package audit_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"kindred/domain/id"
	"kindred/eventstore/audit"
	"kindred/testkit"
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
	const client id.Client = "cli_04hk8ls48pkqs04hk8ls48pkqs"
	key := testkit.Must(audit.KeyFromSeed(make([]byte, 32)))(t)
	public := testkit.Must(key.Public())(t)
	keys := testkit.Must(audit.ParseKeys(fmt.Appendf(nil, `{"keys": [%s]}`, public)))(t)
	signed := func(client id.Client, size int64, root audit.Hash) string {
		return testkit.Must(key.Sign(audit.Head{Client: client, Size: size, Root: root}))(t)
	}
	events := leaves(21)
	_, nodes := grown(events)
	roots := make([]audit.Hash, len(events)+1)
	for size := range roots {
		roots[size] = reference(events[:size])
		tree, _ := grown(events[:size])
		if tree.Root() != roots[size] {
			t.Fatalf("the root of %d leaves differs from the definition", size)
		}
		if root, err := audit.RootAt(nodes, max(1, int64(size))); err != nil || size > 0 && root != roots[size] {
			t.Fatalf("the root at %d differs: %v", size, err)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	heads := make([]string, len(roots))
	for size := range heads {
		heads[size] = signed(client, int64(size), roots[size])
	}
	for size := int64(1); size <= int64(len(events)); size++ {
		for i := range size {
			from := i + 1
			proof := audit.Proof{Head: heads[size], Size: &size, Root: &roots[size], Ordinal: &i, Hash: events[i], FromSize: &from}
			var inclusionFailed, consistencyFailed error
			proof.Inclusion, inclusionFailed = audit.Inclusion(nodes, i, size)
			proof.Consistency, consistencyFailed = audit.Consistency(nodes, from, size)
			if err := errors.Join(inclusionFailed, consistencyFailed); err != nil {
				t.Fatal(err)
			}
			if proven, err := (audit.Proof{Head: heads[size], Ordinal: &i, Hash: events[i], Inclusion: proof.Inclusion}).Verify(keys, nil); err != nil || *proven.Event != i || proven.Since != nil {
				t.Fatalf("event %d of %d alone: %+v, %v", i, size, proven, err)
			}
			kept := []string{heads[from]}
			if proven, err := proof.Verify(keys, kept); err != nil || *proven.Event != i || proven.Since.Root != roots[from] {
				t.Fatalf("event %d and size %d of %d: %+v, %v", i, from, size, proven, err)
			}
			if proven, err := (audit.Proof{Head: heads[size], FromSize: &from, Consistency: proof.Consistency}).Verify(keys, kept); err != nil || proven.Event != nil || proven.Since.Size != from {
				t.Fatalf("size %d of %d alone: %+v, %v", from, size, proven, err)
			}
			refused := func(what string, kept []string, why error, change func(*audit.Proof)) {
				t.Helper()
				p := proof
				p.Inclusion, p.Consistency = slices.Clone(p.Inclusion), slices.Clone(p.Consistency)
				change(&p)
				if _, err := p.Verify(keys, kept); !errors.Is(err, why) {
					t.Fatalf("event %d and size %d of %d: %s: %v", i, from, size, what, err)
				}
			}
			refused("another event", kept, audit.ErrProof, func(p *audit.Proof) { p.Hash = events[(i+1)%int64(len(events))] })
			refused("an event beyond the end", kept, audit.ErrProof, func(p *audit.Proof) { p.Ordinal = &size })
			refused("a longer path", kept, audit.ErrProof, func(p *audit.Proof) { p.Inclusion = append(p.Inclusion, audit.Hash{}) })
			refused("a longer consistency", kept, audit.ErrProof, func(p *audit.Proof) { p.Consistency = append(p.Consistency, audit.Hash{}) })
			refused("another beginning", []string{signed(client, from, audit.Hash{})}, audit.ErrProof, func(*audit.Proof) {})
			refused("no beginning", nil, audit.ErrNoHead, func(*audit.Proof) {})
			refused("the beginning of another client", []string{signed("cli_14hk8ls48pkqs04hk8ls48pkqs", from, roots[from])}, audit.ErrNoHead, func(*audit.Proof) {})
			refused("nothing of the head that was kept", kept, audit.ErrNoHead, func(p *audit.Proof) { p.FromSize, p.Consistency = nil, nil })
			if from < size {
				refused("the older of two heads that were kept", []string{heads[from], heads[size]}, audit.ErrNoHead, func(*audit.Proof) {})
				refused("the older of them, which is the last", []string{heads[size], heads[from]}, audit.ErrNoHead, func(*audit.Proof) {})
			}
			refused("another root", kept, audit.ErrProof, func(p *audit.Proof) { p.Head = signed(client, size, audit.Hash{}) })
			refused("a root that the head does not say", kept, audit.ErrProof, func(p *audit.Proof) { p.Root = new(audit.Hash) })
			refused("a size that the head does not say", kept, audit.ErrProof, func(p *audit.Proof) { p.Size = new(size + 1) })
			refused("an unsigned head", kept, audit.ErrHead, func(p *audit.Proof) { p.Head = p.Head[:len(p.Head)-8] + "AAAAAAAA" })
			if size > 1 {
				refused("another place", kept, audit.ErrProof, func(p *audit.Proof) { p.Ordinal = new((i + 1) % size) })
				refused("a changed path", kept, audit.ErrProof, func(p *audit.Proof) {
					p.Inclusion[random.IntN(len(p.Inclusion))][random.IntN(32)] ^= 1
				})
			}
			if from < size {
				refused("a changed consistency", kept, audit.ErrProof, func(p *audit.Proof) {
					p.Consistency[random.IntN(len(p.Consistency))][random.IntN(32)] ^= 1
				})
				refused("a shorter consistency", kept, audit.ErrProof, func(p *audit.Proof) { p.Consistency = p.Consistency[1:] })
			}
		}
	}
}
