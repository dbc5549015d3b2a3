package replay

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/audit"
)

// Trees are the Merkle trees of a log's clients. That of no client, "", is over
// the events that belong to none.
type Trees map[id.Client]*audit.Tree

// Grow makes the trees of all that a source tells. Each, which may be nil, is
// called after each page.
func Grow(ctx context.Context, from Source, each func([]eventstore.Record) error) (Trees, error) {
	trees := Trees{}
	for {
		page, err := from.Next(ctx, batchSize)
		if err != nil {
			return nil, fmt.Errorf("read what is to be compared: %w", err)
		}
		if len(page) == 0 {
			return trees, nil
		}
		for _, r := range page {
			hash, err := eventstore.Hash(r)
			if err != nil {
				return nil, err
			}
			if trees[r.Client] == nil {
				trees[r.Client] = &audit.Tree{}
			}
			trees[r.Client].Append(hash, nil)
		}
		if each != nil {
			if err := each(page); err != nil {
				return nil, err
			}
		}
	}
}

// Events counts the events of all trees.
func (t Trees) Events() (n int64) {
	for _, tree := range t {
		n += tree.Size
	}
	return n
}

// Unlike lists the clients whose trees are not the same, in order of their ids.
func (t Trees) Unlike(o Trees) []id.Client {
	all := maps.Clone(t)
	maps.Copy(all, o)
	maps.DeleteFunc(all, func(c id.Client, _ *audit.Tree) bool {
		return t[c] != nil && o[c] != nil && t[c].Size == o[c].Size && t[c].Root() == o[c].Root()
	})
	return slices.Sorted(maps.Keys(all))
}

// Difference is the first place where two logs of a client differ.
type Difference struct {
	Ordinal int64
	Here    id.Event // "": it ends before
	There   id.Event
}

// First finds the first difference between what two sources tell of a client.
func First(ctx context.Context, client id.Client, here, there Source) (d Difference, found bool, err error) {
	a, b := oneClient{from: here, client: client}, oneClient{from: there, client: client}
	for ; ; d.Ordinal++ {
		mine, err := a.next(ctx)
		if err != nil {
			return d, false, err
		}
		other, err := b.next(ctx)
		if err != nil {
			return d, false, err
		}
		if mine == nil && other == nil {
			return d, false, nil
		}
		if mine != nil && other != nil {
			x, errX := eventstore.Hash(*mine)
			y, errY := eventstore.Hash(*other)
			if errX == nil && errY == nil && x == y {
				continue
			}
		}
		if mine != nil {
			d.Here = mine.ID
		}
		if other != nil {
			d.There = other.ID
		}
		return d, true, nil
	}
}

// oneClient goes through the events of one client.
type oneClient struct {
	from   Source
	client id.Client
	page   []eventstore.Record
}

func (c *oneClient) next(ctx context.Context) (*eventstore.Record, error) {
	for {
		for len(c.page) > 0 {
			r := &c.page[0]
			if c.page = c.page[1:]; r.Client == c.client {
				return r, nil
			}
		}
		page, err := c.from.Next(ctx, batchSize)
		if err != nil || len(page) == 0 {
			return nil, err
		}
		c.page = page
	}
}
