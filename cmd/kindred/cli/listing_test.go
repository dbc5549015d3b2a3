package cli

import (
	"bytes"
	"testing"
)

func TestWhatOthersChoseIsNoCommandToATerminal(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Café": "Café", "a\x1b]0;owned\a": `a\x1b]0;owned\a`, "two\nlines": `two\nlines`, "back\u202ewards": `back\u202ewards`,
	} {
		if got := printable(text); got != want {
			t.Errorf("%q: %q, not %q", text, got, want)
		}
	}
	var out bytes.Buffer
	list := newListing(&out, true)
	if err := list.end(); err != nil || out.String() != "[]\n" {
		t.Errorf("%v: %q", err, &out)
	}
}
