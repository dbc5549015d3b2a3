package segments

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"kindred/domain/id"
	"kindred/domain/rule"
	"kindred/eventstore"
	"kindred/projections/readmodel"
)

// Why a version is blocked, beside what rule.Breach says: followed by a space, and the id.
const (
	blockedByLayer   = "layer_retired"
	blockedBySegment = "segment_blocked"
)

// reasons are why a version is blocked, so that it names nobody: its rule reads what it may
// not read any more, or refers to a segment that is blocked.
func (c *segmented) reasons(v *segmentVersion, known map[int][]string) (found []string) {
	if before, is := known[v.number]; is || v.rule == nil {
		return before
	}
	known[v.number] = nil
	bounds := rule.Bounds{Decided: c.decided}
	if v.layer != "" {
		of := c.layers[v.layer]
		if of == nil || of.retired {
			found = append(found, blockedByLayer+" "+string(v.layer))
			of = &segmentLayer{paths: v.rule.Paths()}
		}
		bounds.Layered, bounds.Paths = true, of.paths
	}
	for _, breach := range v.rule.Breaches(bounds) {
		found = append(found, breach.Cause+" "+breach.Name)
	}
	for _, segment := range v.refers {
		to := c.referred(v, id.Segment(segment))
		if to != nil && (to.serves && to.isBlocked() || len(c.reasons(to, known)) > 0) {
			found = append(found, blockedBySegment+" "+segment)
		}
	}
	known[v.number] = found
	return found
}

const (
	blockVersion    = `UPDATE segment_versions SET blocked = $3 WHERE client = $1 AND number = $2`
	renumberVersion = `UPDATE segment_versions SET number = $3, built = 0 WHERE client = $1 AND number = $2`
	beginChanges    = `UPDATE segments SET changes_from = $3 WHERE client = $1 AND id = ANY($2)`
)

// block finds the versions that are blocked, and those that no longer are, after a change
// of what rules may read. A serving version that is blocked is empty from here on, so its
// followers read its members again. When it is no longer blocked it stays empty until its
// rule has judged everybody anew. A version that is being built begins anew. Each of these
// gets another number, since rows of users hold the old one. A number is set apart for
// every version, changed or not: a rebuild cannot open rules whose key was destroyed, and
// must give the same numbers.
//
// An example: the versions 3 and 4 stand when a layer is retired that the rule of 3 reads.
// Then 3 becomes 5, and 6 is set apart for 4, which stays. A rebuild that cannot open the rule
// of 3 any more renumbers none, and the next version is 7 there, too.
func (c *segmented) block(ctx context.Context, r eventstore.Recorded) error {
	var b pgx.Batch
	queue := func(sql string, args ...any) { b.Queue(sql, append([]any{string(c.client)}, args...)...) }
	reasons := map[int][]string{}
	for _, v := range c.ordered {
		c.reasons(v, reasons)
	}
	// In the order of segments: a rebuild renumbers fewer versions, so their numbers may
	// differ.
	bySegment := slices.SortedFunc(slices.Values(c.ordered), func(a, b *segmentVersion) int {
		return cmp.Or(cmp.Compare(a.segment, b.segment), cmp.Compare(a.generation, b.generation))
	})
	for _, v := range bySegment {
		number := c.next
		c.next++
		why := reasons[v.number]
		if v.serves && v.isBlocked() && why == nil {
			why = []string{}
		}
		if slices.Equal(why, v.blocked) && (why == nil) == (v.blocked == nil) {
			continue
		}
		queue(blockVersion, v.number, why)
		was := v.isBlocked()
		if v.blocked = why; v.isBlocked() == was {
			continue
		}
		queue(renumberVersion, v.number, number)
		queue(dropBlocks, []int{v.number})
		queue(dropDeltas, []int{v.number})
		delete(c.versions, v.number)
		v.number, v.built = number, 0
		c.versions[number] = v
		if v.serves {
			queue(beginChanges, []string{string(v.segment)}, string(r.Position))
		}
	}
	if b.Len() == 0 {
		return nil
	}
	if err := readmodel.Send(ctx, c.tx, "segments", &b); err != nil {
		return err
	}
	return c.derive(ctx)
}

// blockNew blocks versions that do not serve yet and whose rules read what they may not
// read any more.
func (c *segmented) blockNew(ctx context.Context) error {
	reasons := map[int][]string{}
	for _, v := range c.ordered {
		if v.serves {
			continue
		}
		if why := c.reasons(v, reasons); why != nil {
			if err := readmodel.Do(ctx, c.tx, "block a segment", blockVersion, string(c.client), v.number, why); err != nil {
				return err
			}
			v.blocked = why
		}
	}
	return nil
}
