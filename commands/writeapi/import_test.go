package writeapi

import (
	"strings"
	"testing"

	"kindred/commands"
	"kindred/httpapi"
	"kindred/testkit"
)

func TestALineMayHaveAllItsBytesBesideItsBreak(t *testing.T) {
	t.Parallel()
	line := func(size int) string {
		const user = `{"external_id":"u1"}`
		return user + strings.Repeat(" ", size-len(user))
	}
	for _, ending := range []string{"\n", ""} {
		read := newLines(strings.NewReader(line(maxLine+1)+"\n"+line(maxLine)+ending), httpapi.NewUserLines())
		var got []commands.Imported
		for {
			some := testkit.Must(read.next())(t)
			if len(some) == 0 {
				break
			}
			got = append(got, some...)
		}
		switch {
		case len(got) != 2:
			t.Errorf("before %q: %d lines, not 2", ending, len(got))
		case got[0].Refused == nil || got[0].Refused.Code != "line_too_long":
			t.Errorf("before %q: a line of a byte too many: %v", ending, got[0].Refused)
		case got[1].Refused != nil:
			t.Errorf("before %q: a line that is as long as it may be: %v", ending, got[1].Refused)
		}
	}
}
