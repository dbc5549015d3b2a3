package httpapi

import "strconv"

// PageSize is how many a page holds: what the caller asked for, 50 by default.
// The contract bounds it at 200.
func PageSize(limit *Limit) int {
	if limit == nil {
		return 50
	}
	return *limit
}

// ETag writes an object's revision as its entity tag.
func ETag(revision int64) string { return `"` + strconv.FormatInt(revision, 10) + `"` }
