package httpapi

import (
	"strconv"
	"strings"

	"kindred/domain/id"
)

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

// UserETag is the entity tag of a user. It names the user, since the next user of an erased
// one's external id has the same URL, and counts revisions anew (RFC 9110, section 8.8.1).
func UserETag(user id.User, revision int64) string {
	return `"` + strconv.FormatInt(revision, 10) + "." + string(user) + `"`
}

// readETag reads an entity tag that ETag wrote, or UserETag.
func readETag(tag string) (user id.User, revision int64, ok bool) {
	number, of, _ := strings.Cut(strings.Trim(tag, `"`), ".")
	revision, err := strconv.ParseInt(number, 10, 64)
	want := ETag(revision)
	if of != "" {
		want = UserETag(id.User(of), revision)
	}
	return id.User(of), revision, err == nil && tag == want
}
