package app

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kindred"
	"kindred/golden"
	"kindred/testkit"
)

// TestTheConfigurationPageIsTheTableOfSettings writes the page anew with -update.
func TestTheConfigurationPageIsTheTableOfSettings(t *testing.T) {
	t.Parallel()
	const page, begin, end = "docs/configuration.md", "<!-- settings -->\n", "<!-- end of settings -->\n"
	text := testkit.Must(kindred.Documentation.ReadFile(page))(t)
	var table strings.Builder
	table.WriteString("| variable | default | meaning |\n|---|---|---|\n")
	for _, s := range new(Config).settings() {
		value := ""
		if s.value != "" {
			value = "`" + s.value + "`"
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", s.name, value, strings.ReplaceAll(s.meaning, "|", `\|`))
	}
	before, rest, found := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s lacks the marks of its table", page)
	}
	wanted := before + begin + table.String() + end + after
	if wanted == string(text) {
		return
	}
	if !*golden.Update {
		t.Fatalf("%s is not what app/config.go says: go test ./app -run ConfigurationPage -update", page)
	}
	if err := os.WriteFile(filepath.Join("..", page), []byte(wanted), 0o644); err != nil {
		t.Fatal(err)
	}
}
