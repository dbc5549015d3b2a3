package docsite

import (
	"bytes"
	"fmt"
	"html/template"
	"io/fs"
	"net/url"
	"path"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// home is where README.md is served.
const home = "/docs"

// decisions is the page that lists the decisions, the other files of its folder.
const decisions = "docs/adr/README.md"

// address is where a file of the repository is served: README.md at /docs,
// docs/guide.md at /docs/guide, docs/adr/README.md at /docs/adr.
func address(file string) string {
	name := strings.TrimPrefix(file, "docs/")
	name = strings.TrimSuffix(strings.TrimSuffix(name, ".md"), "README")
	return path.Join(home, strings.ToLower(name))
}

// page is one Markdown file.
type page struct {
	title, path string
	body        template.HTML
	headings    []heading
	wide        bool // it has a table of many columns
	sections    []section
}

// section is what stands under one heading, and what a search finds.
type section struct {
	page, title, url, text string
	titleWords, textWords  string // as words writes them
}

// heading is one of level 2, which the list beside a page shows.
type heading struct{ ID, Title string }

// menuTitle is what the list of pages calls a page.
func (p *page) menuTitle() string {
	if p.path == home {
		return "Overview"
	}
	return p.title
}

func readPages(files fs.FS) (map[string]*page, error) {
	pages := map[string]*page{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/adr/*.md"} {
		names, err := fs.Glob(files, pattern)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			source, err := fs.ReadFile(files, name)
			if err != nil {
				return nil, err
			}
			if pages[name], err = readPage(name, source); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return pages, nil
}

var markdown = goldmark.New(
	goldmark.WithExtensions(extension.Table),
	goldmark.WithParserOptions(parser.WithAutoHeadingID()),
	goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(wideTables{}, 100))),
)

func readPage(file string, source []byte) (*page, error) {
	p := &page{path: address(file)}
	tree := markdown.Parser().Parse(text.NewReader(source), parser.WithContext(parser.NewContext(parser.WithIDs(anchors{}))))
	if err := p.relink(file, tree); err != nil {
		return nil, err
	}
	for node := tree.FirstChild(); node != nil; node = node.NextSibling() {
		p.wide = p.wide || manyColumns(node)
		title, isHeading := node.(*ast.Heading)
		if !isHeading || title.Level > 3 || title.Level > 1 && isDecision(file) {
			if len(p.sections) > 0 {
				last := &p.sections[len(p.sections)-1]
				last.text += plain(node, source) + " "
			}
			continue
		}
		id, _ := title.AttributeString("id")
		anchor, name := fmt.Sprintf("%s", id), strings.TrimSpace(plain(title, source))
		s := section{page: p.title, title: name, url: p.path + "#" + anchor}
		switch title.Level {
		case 1:
			p.title = name
			s.page, s.url = "", p.path
		case 2:
			p.headings = append(p.headings, heading{anchor, name})
		}
		p.sections = append(p.sections, s)
	}
	if p.title == "" {
		return nil, fmt.Errorf("it has no heading of level 1")
	}
	var out bytes.Buffer
	err := markdown.Renderer().Render(&out, source, tree)
	p.body = template.HTML(out.String()) //nolint:gosec // our own pages, without HTML of their own
	return p, err
}

// isDecision tells a record of a decision, which a search finds as a whole.
func isDecision(file string) bool {
	return path.Dir(file) == path.Dir(decisions) && file != decisions
}

// anchors are the ids of headings that a page has, made as GitHub makes them, so
// that links hold in both places.
type anchors map[string]bool

// Generate makes the id of a heading.
func (a anchors) Generate(title []byte, _ ast.NodeKind) []byte {
	id := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(string(title)))
	unique := id
	for i := 1; a[unique]; i++ {
		unique = fmt.Sprintf("%s-%d", id, i)
	}
	a[unique] = true
	return []byte(unique)
}

// Put notes an id that was given by hand.
func (a anchors) Put(id []byte) { a[string(id)] = true }

// relink leads links between files to where the site serves them.
func (p *page) relink(file string, tree ast.Node) error {
	return ast.Walk(tree, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch node := node.(type) {
		case *ast.Link:
			node.Destination = relinked(file, node.Destination)
		case *ast.Image:
			node.Destination = relinked(file, node.Destination)
		}
		return ast.WalkContinue, nil
	})
}

func relinked(file string, destination []byte) []byte {
	to, err := url.Parse(string(destination))
	if err != nil || to.Scheme != "" || to.Path == "" || strings.HasPrefix(to.Path, "/") {
		return destination
	}
	to.Path = address(path.Join(path.Dir(file), to.Path))
	return []byte(to.String())
}

// plain is the text of a node, code included.
func plain(node ast.Node, source []byte) string {
	var out strings.Builder
	_ = ast.Walk(node, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // its function returns no error
		switch n := n.(type) {
		case *ast.Text:
			if entering {
				out.Write(n.Segment.Value(source))
				if n.SoftLineBreak() {
					out.WriteByte(' ')
				}
			}
		case *ast.FencedCodeBlock:
			if entering {
				out.Write(n.Lines().Value(source))
			}
		case *extast.TableCell, *ast.ListItem, *ast.Paragraph:
			if !entering {
				out.WriteByte(' ')
			}
		}
		return ast.WalkContinue, nil
	})
	return out.String()
}

// manyColumns tells a table that takes the whole width of its page.
func manyColumns(node ast.Node) bool {
	table, is := node.(*extast.Table)
	return is && len(table.Alignments) >= 6
}

// wideTables lets a table that is wider than its page be moved by itself, and
// code blocks be reached by the keyboard.
type wideTables struct{}

func (wideTables) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(extast.KindTable, func(w util.BufWriter, _ []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
		tag := "</table></div>\n"
		switch {
		case entering && manyColumns(node):
			tag = "<div class=\"wide columns\" tabindex=\"0\"><table>\n"
		case entering:
			tag = "<div class=\"wide\" tabindex=\"0\"><table>\n"
		}
		_, err := w.WriteString(tag)
		return ast.WalkContinue, err
	})
	r.Register(ast.KindFencedCodeBlock, func(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		_, err := fmt.Fprintf(w, "<pre tabindex=\"0\"><code>%s</code></pre>\n", util.EscapeHTML(node.(*ast.FencedCodeBlock).Lines().Value(source)))
		return ast.WalkContinue, err
	})
}
