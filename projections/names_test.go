package projections_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"kindred/eventstore/projector"
	"kindred/golden"
	"kindred/projections"
)

var sqlComment = regexp.MustCompile(`--[^\n]*`)

// A database keeps the tables that it has of a version. Lines of earlier versions stay.
func TestTablesOfReadModelsStay(t *testing.T) {
	text, _ := os.ReadFile("../golden/tables.txt") // without it golden.Check fails
	var lines []string
	for _, m := range projections.All() {
		tables := strings.Fields(sqlComment.ReplaceAllString(m.Schema()+projector.OptionsOf(m).Key.DDL, ""))
		version := fmt.Sprintf("%s version %d ", m.Name(), m.Version())
		line := fmt.Sprintf("%shas the tables %x", version, sha256.Sum256([]byte(strings.Join(tables, " "))))
		for stands := range strings.Lines(string(text)) {
			switch stands = strings.TrimSpace(stands); {
			case !strings.HasPrefix(stands, m.Name()+" version "):
			case !strings.HasPrefix(stands, version):
				lines = append(lines, stands)
			case stands != line:
				t.Errorf("the tables of %s have changed: raise its Version, as databases keep those of version %d; where no release has these, take their line out of golden/tables.txt",
					m.Name(), m.Version())
			}
		}
		lines = append(lines, line)
	}
	golden.Check(t, "tables.txt", lines)
}
