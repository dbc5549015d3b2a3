package cli

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

func TestHelpAboutNothingIsRefused(t *testing.T) {
	t.Parallel()
	for line, code := range map[string]int{
		"help": 0, "help events": 0, "help users import": 0, "help nope": 2, "help users nope": 2, "nope": 1, "users nope": 1,
	} {
		var out bytes.Buffer
		c := Command(func(string) string { return "" }, &out, io.Discard)
		c.SetArgs(strings.Fields(line))
		err := c.Execute()
		if got := exitCode(err); got != code || code == 0 && !strings.Contains(out.String(), "Usage:") {
			t.Errorf("kindred %s ends with %d (%v), want %d:\n%s", line, got, err, code, &out)
		}
		if name := line[strings.LastIndex(line, " ")+1:]; code == 2 && !strings.Contains(err.Error(), name) {
			t.Errorf("kindred %s says %v", line, err)
		}
	}
}
