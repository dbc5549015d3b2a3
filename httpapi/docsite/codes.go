package docsite

import (
	"fmt"
	"io/fs"
	"strings"
)

const errorsFile = "docs/errors.md"

// CodePath is where the page of an error code is served.
func CodePath(code string) string { return address(errorsFile) + "/" + code }

// explained is what the page of errors says about one code.
type explained struct{ code, status, text string }

func readCodes(files fs.FS) ([]explained, error) {
	source, err := fs.ReadFile(files, errorsFile)
	if err != nil {
		return nil, err
	}
	var all []explained
	status := ""
	for line := range strings.Lines(string(source)) {
		if group, found := strings.CutPrefix(line, "## "); found {
			status = strings.TrimSpace(group)
		} else if code, found := strings.CutPrefix(line, "### "); found {
			all = append(all, explained{code: strings.TrimSpace(code), status: status})
		} else if last := len(all) - 1; last >= 0 && status == all[last].status {
			all[last].text += line
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
		source := fmt.Sprintf("# %s\n\n%s\n\n%s\n[All errors](%s#%s)\n", one.code, one.status, one.text, address(errorsFile), one.code)
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
