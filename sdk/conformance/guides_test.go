package conformance

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"kindred"
)

func TestTheGuidesShowTheExamplesAsTheyAre(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"docs/sdk-go.md", "docs/sdk-typescript.md", "docs/sdk-python.md"} {
		text, err := kindred.Documentation.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		shown := regexp.MustCompile("(?ms)^```[a-z]+ (sdk/[^\n]+)\n(.*?)^```$").FindAllSubmatch(text, -1)
		if len(shown) != 1 {
			t.Errorf("%s shows %d programs", page, len(shown))
		}
		for _, one := range shown {
			program, err := os.ReadFile(filepath.Join("..", "..", string(one[1])))
			if err != nil || string(program) != string(one[2]) {
				t.Errorf("%s does not show %s as it is (%v)", page, one[1], err)
			}
		}
	}
}
