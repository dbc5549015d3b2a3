// Package docsite draws the documentation and the API reference as web pages
// that load nothing from elsewhere and work without JavaScript.
package docsite

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io/fs"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// SearchPath answers the query parameter q.
const SearchPath = "/docs/search"

// Policy is the Content-Security-Policy of all pages.
const Policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

//go:embed layout.html.tmpl
var layoutTemplate string

//go:embed style.css
var stylesheet []byte

//go:embed copy.js
var copyScript []byte

//go:embed icon.svg
var icon []byte

// contents are the pages in the order in which they are listed. What they are
// called is their first heading.
var contents = []struct {
	Name  string
	Files []string
}{
	{"Start", []string{"README.md", "docs/guide.md", "docs/console.md"}},
	{"Build on it", []string{reference, "docs/guarantees.md", "docs/verdict.md", "docs/drift.md", "docs/rules.md", "docs/segments.md", "docs/webhooks.md", "docs/sandboxes.md", "docs/sdk-go.md", "docs/sdk-typescript.md", "docs/sdk-python.md", "docs/cli.md", "docs/errors.md", "docs/limits.md"}},
	{"Operate", []string{"docs/operations.md", "docs/configuration.md", "SECURITY.md", "CHANGELOG.md"}},
	{"Verify", []string{"docs/history.md"}},
	{"Work on it", []string{"docs/architecture.md", "docs/contract.md", "docs/performance.md", decisions, "CONTRIBUTING.md", "docs/recipes.md"}},
}

// Site is the whole documentation, drawn.
type Site struct {
	files    map[string]File
	menu     []menuGroup
	layout   *template.Template
	sections []section
}

// File is what is served at one path.
type File struct {
	Type    string // its Content-Type
	Content []byte
}

type menuGroup struct {
	Name  string
	Pages []menuPage
}

type menuPage struct{ Title, Path string }

// view is what the layout shows.
type view struct {
	Title, Path, Query string
	Menu               []menuGroup
	Headings           []heading // of the page, for the list beside it
	Operations         []group   // of the API reference, in its place
	Wide               bool      // no list stands beside it
	Body               template.HTML
}

// below says whether a page is one of another's, such as that of an error code.
func below(here, path string) bool { return path != "/docs" && strings.HasPrefix(here, path+"/") }

// New draws the pages in files, which have the paths of the repository, and the
// reference of a contract.
func New(files fs.FS, contract *openapi3.T) (*Site, error) {
	layout, err := template.New("layout").Funcs(template.FuncMap{"slug": slug, "below": below}).Parse(layoutTemplate)
	if err != nil {
		return nil, err
	}
	s := &Site{layout: layout, files: map[string]File{
		home + "/style.css": {"text/css; charset=utf-8", stylesheet},
		home + "/copy.js":   {"text/javascript; charset=utf-8", copyScript},
		home + "/icon.svg":  {"image/svg+xml", icon},
	}}
	groups := operations(contract)
	pages, err := readPages(files)
	if err != nil {
		return nil, err
	}
	for _, group := range contents {
		menu := menuGroup{Name: group.Name}
		for _, file := range group.Files {
			if file == reference {
				menu.Pages = append(menu.Pages, menuPage{"API reference", reference})
				continue
			}
			page := pages[file]
			if page == nil {
				return nil, fmt.Errorf("there is no page %s", file)
			}
			menu.Pages = append(menu.Pages, menuPage{page.menuTitle(), page.path})
		}
		s.menu = append(s.menu, menu)
	}
	for _, page := range pages {
		body := page.body
		if page.path == home {
			body += operationsIndex(groups)
		}
		if err := s.draw(view{Title: page.title, Path: page.path, Headings: page.headings, Wide: page.wide, Body: body}); err != nil {
			return nil, err
		}
		s.sections = append(s.sections, page.sections...)
	}
	body, err := drawReference(contract, groups)
	if err != nil {
		return nil, err
	}
	if err := s.draw(view{Title: "API reference", Path: reference, Operations: groups, Wide: true, Body: body}); err != nil {
		return nil, err
	}
	s.sections = append(s.sections, referenceSections(groups)...)
	for i, one := range s.sections {
		s.sections[i].titleWords, s.sections[i].textWords = words(one.page+" "+one.title), words(one.text)
	}
	slices.SortFunc(s.sections, func(a, b section) int { return strings.Compare(a.url, b.url) })
	if err := s.draw(view{Title: "There is no such page", Path: missing, Body: noSuchPage}); err != nil {
		return nil, err
	}
	if err := s.drawCodes(files); err != nil {
		return nil, err
	}
	if err := s.addTexts(files); err != nil {
		return nil, err
	}
	return s, s.addPictures(files)
}

// File returns what is served at a path.
func (s *Site) File(path string) (File, bool) {
	file, found := s.files[path]
	return file, found
}

// Missing is for a path under /docs that nothing is served at.
func (s *Site) Missing() File { return s.files[missing] }

const missing = "" // no path

const noSuchPage = `<h1>There is no such page</h1>
<p>It may have been moved, or its address is not complete. Search for what you look for, or <a href="/docs">begin at the overview</a>.</p>
`

func (s *Site) draw(v view) error {
	page, err := s.drawn(v)
	s.files[v.Path] = File{"text/html; charset=utf-8", page}
	return err
}

func (s *Site) drawn(v view) ([]byte, error) {
	v.Menu = s.menu
	var out bytes.Buffer
	err := s.layout.Execute(&out, v)
	return out.Bytes(), err
}

// pictures are those that pages show, with their types.
var pictures = map[string]string{"docs/*.svg": "image/svg+xml", "docs/screenshots/*.png": "image/png"}

func (s *Site) addPictures(files fs.FS) error {
	for pattern, mediaType := range pictures {
		names, err := fs.Glob(files, pattern)
		if err != nil {
			return err
		}
		for _, name := range names {
			content, err := fs.ReadFile(files, name)
			if err != nil {
				return err
			}
			s.files[address(name)] = File{mediaType, content}
		}
	}
	return nil
}

// Paths lists what files of the documentation are served as, before they are
// drawn.
func Paths(files fs.FS) ([]string, error) {
	paths := []string{reference, home + "/style.css", home + "/copy.js", home + "/icon.svg", llmsPath, llmsFullPath}
	codes, err := readCodes(files)
	if err != nil {
		return nil, err
	}
	for _, one := range codes {
		paths = append(paths, CodePath(one.code))
	}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*.svg", "docs/screenshots/*.png", "docs/adr/*.md"} {
		names, err := fs.Glob(files, pattern)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			paths = append(paths, address(name))
		}
	}
	return paths, nil
}
