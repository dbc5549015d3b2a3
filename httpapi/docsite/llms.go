package docsite

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

// Where models that answer questions find the documentation (llmstxt.org).
const (
	llmsPath     = "/llms.txt"
	llmsFullPath = "/llms-full.txt"
)

// link is one that leads from a page elsewhere than from a list at the top.
var link = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

// local is the end of a link to a file of the repository, or within its page. Code may look
// like other links.
var local = regexp.MustCompile(`\]\((?:[^)\s:]+\.(?:md|svg|png)(?:#[^)\s]+)?|#[^)\s]+)\)`)

var lead = regexp.MustCompile(`(?s)\A# ([^\n]+)\n+(.*?)(?:\n\n|\z)`)

// addTexts makes of the pages a list with what each begins with, and one text with
// all of them.
func (s *Site) addTexts(files fs.FS) error {
	var list, full strings.Builder
	for _, group := range contents {
		for i, file := range group.Files {
			if file == reference {
				continue
			}
			source, err := fs.ReadFile(files, file)
			if err != nil {
				return err
			}
			parts := lead.FindSubmatch(source)
			if parts == nil {
				return fmt.Errorf("%s does not begin with a heading and a paragraph", file)
			}
			about := link.ReplaceAllString(strings.Join(strings.Fields(string(parts[2])), " "), "$1")
			switch {
			case file == "README.md":
				fmt.Fprintf(&list, "# %s\n\n> %s\n", parts[1], about)
			case i == 0 || i == 1 && (group.Files[0] == "README.md" || group.Files[0] == reference):
				fmt.Fprintf(&list, "\n## %s\n\n", group.Name)
				fallthrough
			default:
				fmt.Fprintf(&list, "- [%s](%s): %s\n", parts[1], address(file), about)
			}
			here := local.ReplaceAllFunc(source, func(end []byte) []byte {
				to := end[2 : len(end)-1]
				if to[0] == '#' {
					to = append([]byte(path.Base(file)), to...)
				}
				return fmt.Appendf(nil, "](%s)", relinked(file, to))
			})
			fmt.Fprintf(&full, "<!-- %s -->\n\n%s\n", address(file), here)
		}
	}
	fmt.Fprintf(&list, "\n## For machines\n\n- [The API](/openapi.json): OpenAPI 3.0, all operations with examples\n"+
		"- [The events](/asyncapi.json): AsyncAPI 3.0, what webhooks and the stream tell\n"+
		"- [All of this in one text](%s)\n- Each error code: %s\n", llmsFullPath, CodePath("{code}"))
	s.files[llmsPath] = File{"text/plain; charset=utf-8", []byte(list.String())}
	s.files[llmsFullPath] = File{"text/plain; charset=utf-8", []byte(full.String())}
	return nil
}
