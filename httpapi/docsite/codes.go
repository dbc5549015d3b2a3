package docsite

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

const errorsFile = "docs/errors.md"

// CodePath is where the page of an error code is served.
func CodePath(code string) string { return address(errorsFile) + "/" + code }

// explained is what the page of errors says about one code, under each status that it
// stands under.
type explained struct{ code, text string }

func readCodes(files fs.FS) ([]explained, error) {
	source, err := fs.ReadFile(files, errorsFile)
	if err != nil {
		return nil, err
	}
	var all []explained
	status, at := "", -1 // what the line stands under; at: in all
	for line := range strings.Lines(string(source)) {
		if code, found := strings.CutPrefix(line, "### "); found {
			code = strings.TrimSpace(code)
			if at = slices.IndexFunc(all, func(e explained) bool { return e.code == code }); at < 0 {
				at, all = len(all), append(all, explained{code: code})
			}
			all[at].text += "\n" + status + "\n"
		} else if strings.HasPrefix(line, "## ") {
			status, at = line, -1
		} else if at >= 0 {
			all[at].text += line
		}
	}
	return all, nil
}

// drawCodes draws a page for each code. A search finds it on the page of errors.
func (s *Site) drawCodes(files fs.FS) error {
	all, err := readCodes(files)
	if err != nil {
		return err
	}
	for _, one := range all {
		source := fmt.Sprintf("# %s\n%s\n[All errors](%s#%s)\n", one.code, one.text, address(errorsFile), one.code)
		p, err := readPage(errorsFile, []byte(source))
		if err != nil {
			return fmt.Errorf("the code %s: %w", one.code, err)
		}
		if err := s.draw(view{Title: p.title, Path: CodePath(one.code), Body: p.body}); err != nil {
			return err
		}
	}
	return nil
}
