package docsite_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/getkin/kin-openapi/openapi3"

	"kindred"
	"kindred/httpapi"
	"kindred/httpapi/docsite"
	"kindred/testkit"
)

func draw(t testing.TB, files fs.FS) *docsite.Site {
	t.Helper()
	doc := testkit.Must(openapi3.NewLoader().LoadFromData(httpapi.Contract()))(t)
	return testkit.Must(docsite.New(files, doc))(t)
}

// pages returns all pages of the documentation, by path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	site := draw(t, kindred.Documentation)
	paths := testkit.Must(docsite.Paths(kindred.Documentation))(t)
	all := map[string]string{}
	for _, path := range paths {
		file, found := site.File(path)
		if !found {
			t.Errorf("%s is listed and not drawn", path)
		}
		if strings.HasPrefix(file.Type, "text/html") {
			all[path] = string(file.Content)
		}
	}
	return all
}

func TestEveryLinkLeadsSomewhere(t *testing.T) {
	t.Parallel()
	all := pages(t)
	if len(all) < 16 {
		t.Fatalf("only %d pages", len(all))
	}
	site := draw(t, kindred.Documentation)
	for path, page := range all {
		for _, link := range regexp.MustCompile(`(?:href|src)="([^"]*)"`).FindAllStringSubmatch(page, -1) {
			to, anchor, _ := strings.Cut(link[1], "#")
			if strings.HasPrefix(to, "https://") || to == "/openapi.json" || to == "/asyncapi.json" {
				continue
			}
			if to == "" {
				to = path
			}
			if _, found := site.File(to); !found {
				t.Errorf("%s leads to %s, which is not there", path, link[1])
			}
			if anchor != "" && strings.Count(all[to], `id="`+anchor+`"`) != 1 {
				t.Errorf("%s leads to %s, of which there are %d", path, link[1], strings.Count(all[to], `id="`+anchor+`"`))
			}
		}
	}
}

func TestEveryPageIsInTheMenuOrAmongTheDecisions(t *testing.T) {
	t.Parallel()
	all := pages(t)
	for path := range all {
		if strings.HasPrefix(path, docsite.CodePath("")) {
			continue // problems lead there
		}
		if from := map[bool]string{true: all["/docs/adr"], false: all["/docs"]}[strings.HasPrefix(path, "/docs/adr/")]; !strings.Contains(from, `href="`+path+`"`) {
			t.Errorf("nothing leads to %s", path)
		}
	}
}

// A page that the menu does not list is marked by the one that it belongs to, and no page by two.
func TestTheMenuSaysWhereOneIs(t *testing.T) {
	t.Parallel()
	all := pages(t)
	for path, want := range map[string]string{
		docsite.CodePath("stale"): `href="/docs/errors" aria-current="true"`,
		"/docs/errors":            `href="/docs/errors" aria-current="page"`,
		"/docs/webhooks":          `href="/docs/webhooks" aria-current="page"`,
	} {
		if marked := strings.Count(all[path], "aria-current"); !strings.Contains(all[path], want) || marked != 2 { // beside the page, and above it
			t.Errorf("%s: %d marks, want %s", path, marked, want)
		}
	}
}

func TestAPageWithATableOfManyColumnsIsWide(t *testing.T) {
	t.Parallel()
	all := pages(t)
	for path, wide := range map[string]bool{"/docs/performance": true, "/docs/api": true, "/docs/operations": false} {
		page := all[path]
		if strings.Contains(page, "wide-page") != wide || strings.Contains(page, `class="toc"`) == wide || strings.Contains(page, `class="wide columns"`) != (path == "/docs/performance") {
			t.Errorf("%s: a table of many columns has the width of the page, another has a list beside it", path)
		}
	}
}

func TestNoHeadingSkipsALevelAndEachColumnHasAName(t *testing.T) {
	t.Parallel()
	for path, page := range pages(t) {
		if strings.Contains(page, "<th></th>") {
			t.Errorf("%s has a column without a name, which a screen reader reads out with each cell", path)
		}
		before := byte('0')
		for _, heading := range regexp.MustCompile(`<h([1-6])\b[^\n]*`).FindAllStringSubmatch(page, -1) {
			if level := heading[1][0]; level > before+1 {
				t.Errorf("%s has %s below a heading of level %c", path, heading[0], before)
			}
			before = heading[1][0]
		}
	}
}

func TestPagesLoadNothingFromElsewhere(t *testing.T) {
	t.Parallel()
	for path, page := range pages(t) {
		if outside := regexp.MustCompile(`(?i)src="?(https?:)?//|<link[^>]*href="?(https?:)?//|style="|<style|<script>| on\w+="|@import|url\(`).FindString(page); outside != "" {
			t.Errorf("%s loads or runs %s", path, outside)
		}
	}
}

// TestTheHomePageHasTheAnchorsOfTheReference holds links such as
// /docs#createUser, from when the reference stood there.
func TestTheHomePageHasTheAnchorsOfTheReference(t *testing.T) {
	t.Parallel()
	all := pages(t)
	for _, section := range regexp.MustCompile(`<section class="operation" id="(\w+)">`).FindAllStringSubmatch(all["/docs/api"], -1) {
		if !strings.Contains(all["/docs"], fmt.Sprintf(`<li id="%s"><a href="/docs/api#%[1]s">`, section[1])) {
			t.Errorf("/docs#%s leads nowhere", section[1])
		}
	}
}

func search(t testing.TB, site *docsite.Site, query string) string {
	t.Helper()
	page := testkit.Must(site.Search(query))(t)
	_, results, _ := strings.Cut(string(page), "<main")
	return results
}

func TestASearchFindsSectionsBestFirst(t *testing.T) {
	t.Parallel()
	site := draw(t, kindred.Documentation)
	for query, want := range map[string]string{
		"in_flight":           `/docs/errors#in_flight`,
		"KINDRED_EPOCH_DIR":   `/docs/configuration`,
		"sign a company up":   `/docs/api#signUp`,
		"REDELIVER deliv":     `/docs/api#repeatDelivery`,
		"receiver node":       `/docs/webhooks`,
		"PgBouncer":           `/docs/operations`,
		"consistency proof":   `/docs/history`,
		"X-Kindred-Position ": `/docs`,
		"pagination":          `/docs/guarantees#lists-are-complete`,
		"sort":                `/docs/guarantees#lists-are-complete`,
		"CORS":                `/docs/security#`,
		"GDPR":                `/docs/guarantees#erasure-is-true`,
		"prometheus":          `/docs/operations#watch`,
		"password reset":      `/docs/security#`,
		"webhok signature":    `/docs/webhooks`,
		"segmant":             `/docs/segments`,
		"delete user":         `/docs/guide#erase-a-user`,
		"log out":             `/docs/guide#sign-up`,
		"erase user":          `/docs/api#eraseUser`,
		"bulk delete users":   `/docs/guide#erase-a-user`,
		"data retention":      `/docs/limits#what-is-kept-for-how-long`,
		"health check":        `/docs/operations#start`,
		"kubernetes":          `/docs/operations#watch`,
		"monitoring":          `/docs/operations#watch`,
		"tenant isolation":    `/docs/security#what-it-holds-against`,
		"two factor":          `/docs/security#`,
	} {
		results := search(t, site, query)
		first := regexp.MustCompile(`<li><a href="([^"]*)"`).FindStringSubmatch(results)
		if first == nil || !strings.HasPrefix(first[1], want) {
			t.Errorf("%s: found %v first, want %s", query, first, want)
		}
		if !strings.Contains(results, "<mark>") {
			t.Errorf("%s: nothing is marked", query)
		}
	}
}

// Pages and console are one product, and so have one mark.
func TestTheMarkIsThatOfTheConsole(t *testing.T) {
	t.Parallel()
	circles := func(file string) []string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return regexp.MustCompile(`cx="[\d.]+" cy="[\d.]+" r="[\d.]+"`).FindAllString(string(text), -1)
	}
	want := circles("../../console/pages/parts.tmpl")
	for _, file := range []string{"layout.html.tmpl", "icon.svg"} {
		if got := circles(file); len(got) != 2 || !slices.Equal(got, want) {
			t.Errorf("%s has %q, the console %q", file, got, want)
		}
	}
}

func TestASearchIsBoundedAndShowsNoMarkupOfOthers(t *testing.T) {
	t.Parallel()
	site := draw(t, kindred.Documentation)
	for query, want := range map[string]string{
		"":                             "Type a word",
		"  &!? ":                       "Type a word",
		"zzyzx":                        "Nothing is said about",
		"<script>alert(1)</script>":    "&lt;script&gt;",
		strings.Repeat("a b c ", 4000): "<main",
		"\xff\xfe zzyzx":               "Nothing is said about",
	} {
		page, err := site.Search(query)
		if err != nil || !strings.Contains(string(page), want) || strings.Contains(string(page), "<script>alert") {
			t.Errorf("%.20q: %v, %.4000s", query, err, page)
		}
	}
	if n := strings.Count(search(t, site, "a"), "<li><a"); n != 20 {
		t.Errorf("%d results of a word that is everywhere, want 20", n)
	}
}

func TestAPageThatIsMissingIsTold(t *testing.T) {
	t.Parallel()
	doc := testkit.Must(openapi3.NewLoader().LoadFromData(httpapi.Contract()))(t)
	if _, err := docsite.New(fstest.MapFS{"README.md": {Data: []byte("# kindred\n")}}, doc); err == nil || !strings.Contains(err.Error(), "docs/guide.md") {
		t.Errorf("missing pages are not told: %v", err)
	}
}

func BenchmarkSearch(b *testing.B) {
	site := draw(b, kindred.Documentation)
	for b.Loop() {
		search(b, site, "webhook delivery signature secret")
	}
}

// TestCitationsOfTheContractLeadSomewhere holds what comments cite of
// docs/contract.md against its headings, and finds none of another document.
func TestCitationsOfTheContractLeadSomewhere(t *testing.T) {
	t.Parallel()
	contract, cited := pages(t)["/docs/contract"], 0
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && len(entry.Name()) > 2 {
			return fs.SkipDir
		}
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, anchor := range regexp.MustCompile(`docs/contract\.md#([a-z-]+)`).FindAllSubmatch(source, -1) {
			if cited++; !strings.Contains(contract, fmt.Sprintf(`id="%s"`, anchor[1])) {
				t.Errorf("%s cites docs/contract.md#%s, which is not there", path, anchor[1])
			}
		}
		if strings.Contains(string(source), "interface "+"specification") {
			t.Errorf("%s cites a document that is not in this repository", path)
		}
		return nil
	})
	if err != nil || cited < 8 {
		t.Errorf("%d citations, %v", cited, err)
	}
}

func TestTheReferenceShowsLimitsDefaultsExamplesAndAProblem(t *testing.T) {
	t.Parallel()
	page := pages(t)["/docs/api"]
	for _, want := range []string{"at least 1", "at most 200", "50 by default", "required", "curl -s", "&#34;external_id&#34;:", "says of each code what it means and what to do.</p>\n<pre tabindex=\"0\"><code>{"} {
		if !strings.Contains(page, want) {
			t.Errorf("it lacks %q", want)
		}
	}
}
