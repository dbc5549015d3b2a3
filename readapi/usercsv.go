package readapi

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"kindred/domain/fault"
	"kindred/httpapi"
	"kindred/projections"
)

const usersWritten = 200 // that are read at a time

// writeUsers writes users as CSV that an import takes: a column for external_id, and one for
// each trait that one of them has. They are read twice, at first for the names of these.
func (a *API) writeUsers(ctx context.Context, p httpapi.ListUsersParams, w io.Writer) error {
	columns, err := a.traitsOf(ctx, p)
	if err != nil {
		return err
	}
	out := csv.NewWriter(w)
	_ = out.Write(append([]string{httpapi.ExternalIDColumn}, columns...)) // Error tells of all
	index := make(map[string]int, len(columns))
	for i, name := range columns {
		index[name] = i + 1
	}
	record := make([]string, len(columns)+1)
	return a.eachUser(ctx, p, func(u projections.User, traits map[string]json.RawMessage) error {
		record[0] = u.ExternalID
		if err := fill(record, index, traits); err != nil {
			return err
		}
		_ = out.Write(record)
		out.Flush()
		return out.Error()
	})
}

// fill writes the traits of a user into the fields that index names. It refuses one that nobody
// had when they were looked for.
func fill(record []string, index map[string]int, traits map[string]json.RawMessage) (err error) {
	clear(record[1:])
	for name, value := range traits {
		i, known := index[name]
		if !known {
			return fault.New(fault.Unavailable, "busy", "A user got a new trait while users were written. Please try again.").After(time.Second)
		}
		if record[i], err = httpapi.CSVField(value); err != nil {
			return err
		}
	}
	return nil
}

// traitsOf are the names of the traits that users have, in order.
func (a *API) traitsOf(ctx context.Context, p httpapi.ListUsersParams) ([]string, error) {
	found := map[string]bool{}
	err := a.eachUser(ctx, p, func(_ projections.User, traits map[string]json.RawMessage) error {
		for name := range traits {
			if len(name) > httpapi.MaxColumnName {
				return fault.New(fault.Conflict, "not_as_csv",
					"A user has a trait whose name has %d bytes, and that of a column may have %d. Read them as JSON.", len(name), httpapi.MaxColumnName)
			}
			if strings.Contains(name, "\r") { // no reader of CSV is sure to give it back
				return fault.New(fault.Conflict, "not_as_csv", "A user has a trait with a carriage return in its name, and no column may have that. Read them as JSON.")
			}
			found[name] = true
		}
		switch {
		case len(found) >= httpapi.MaxColumns:
			return fault.New(fault.Conflict, "not_as_csv",
				"These users have more than %d different traits, one of which is a column. Read them as JSON, or fewer by a filter.", httpapi.MaxColumns-1)
		case found[httpapi.ExternalIDColumn]:
			return fault.New(fault.Conflict, "not_as_csv",
				"A user has a trait %s, which is the name of a column already. Read them as JSON.", httpapi.ExternalIDColumn)
		case found[""]:
			return fault.New(fault.Conflict, "not_as_csv", "A user has a trait whose name is empty, and no column may have that. Read them as JSON.")
		}
		return nil
	})
	return slices.Sorted(maps.Keys(found)), err
}

// eachUser reads all users that a list holds, page by page.
func (a *API) eachUser(ctx context.Context, p httpapi.ListUsersParams, take func(projections.User, map[string]json.RawMessage) error) error {
	p.Limit = new(httpapi.Limit(usersWritten))
	now, later := ctx, eventually(ctx)
	for more := true; more; more = p.Cursor != nil {
		var found []projections.User
		if err := fault.Await(now, func(ctx context.Context) (err error) { // the edge repeats no streams
			var next *httpapi.NextCursor
			if found, next, err = a.usersPage(ctx, p); err == nil {
				p.Cursor = next
			}
			return err
		}); err != nil {
			return err
		}
		now = later //nolint:fatcontext // it does not grow; what the client was told is there already
		for _, u := range found {
			var traits map[string]json.RawMessage
			if err := json.Unmarshal(u.Traits, &traits); err != nil {
				return fmt.Errorf("read the traits of a user: %w", err)
			}
			if err := take(u, traits); err != nil {
				return err
			}
		}
	}
	return nil
}
