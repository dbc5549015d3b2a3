package docsite

import (
	"cmp"
	"html/template"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Bounds of a search: what it takes is a scan of all sections for each word.
const (
	// limit: requests | search of the documentation | {maxQuery} bytes, {maxWords} words, {maxResults} results of {maxExcerpt} characters | the rest is left out
	maxQuery   = 200 // bytes
	maxWords   = 8
	maxResults = 20
	maxExcerpt = 220 // characters
)

// result is a section that holds all words of a query.
type result struct {
	Page, Title, URL string
	Excerpt          template.HTML
	score            float64
}

// words writes the words of a text in lower case, each between spaces, so that
// " log" finds words that begin with it, and " log " the word.
func words(text string) string {
	var out strings.Builder
	for word := range strings.FieldsFuncSeq(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		out.WriteByte(' ')
		out.WriteString(word)
	}
	out.WriteByte(' ')
	return out.String()
}

// Search answers a query with a page of at most 20 sections that hold words
// beginning with each of its words, the best first. It looks at the first 200
// bytes and 8 words of the query.
func (s *Site) Search(query string) ([]byte, error) {
	query = strings.ToValidUTF8(query[:min(len(query), maxQuery)], "")
	v := view{Title: "Search", Path: SearchPath, Query: query}
	asked := strings.Fields(words(query))
	asked = asked[:min(len(asked), maxWords)]
	var out strings.Builder
	err := searchPage.Execute(&out, map[string]any{"Query": query, "Asked": len(asked) > 0, "Results": s.find(asked)})
	if err != nil {
		return nil, err
	}
	v.Body = template.HTML(out.String()) //nolint:gosec // escaped by the template
	return s.drawn(v)
}

var searchPage = template.Must(template.New("search").Parse(`<h1>Search</h1>
{{- if .Results}}
<ol class="results">
{{- range .Results}}
<li><a href="{{.URL}}">{{with .Page}}<span>{{.}}</span> {{end}}<strong>{{.Title}}</strong></a><p>{{.Excerpt}}</p></li>
{{- end}}
</ol>
{{- else if .Asked}}
<p>Nothing is said about <strong>{{.Query}}</strong>. Fewer words, or the beginning of one, find more.</p>
{{- else}}
<p>Type a word into the field at the top: an operation, an error code, a setting.</p>
{{- end}}
`))

// background are the pages that few look for: what is found elsewhere, too, stands before them.
var background = regexp.MustCompile(`^/docs/(adr|architecture|changelog|contract|contributing|limits|performance|recipes|security)\b`)

// shortest is how many letters of a word are looked for at least, and half of it, where all
// of it stands nowhere.
const shortest = 4

// shortened cuts a word from its end until some section holds it: what it ends with may be
// misspelt, or another form of it.
func (s *Site) shortened(word string) string {
	for letters := []rune(word); len(letters) >= max(shortest, len([]rune(word))/2); letters = letters[:len(letters)-1] {
		begins := " " + string(letters)
		if slices.ContainsFunc(s.sections, func(one section) bool {
			return strings.Contains(one.titleWords, begins) || strings.Contains(one.textWords, begins)
		}) {
			return string(letters)
		}
	}
	return word
}

// times is how often a word stands in a text, three times of what only begins with it.
func times(text, word string) int {
	return strings.Count(text, " "+word) + 2*strings.Count(text, " "+word+" ")
}

// find ranks by how often the words stand in a section for its length, as BM25 does, rare
// ones, those of titles and those that stand together before others, and the background
// behind the rest.
func (s *Site) find(asked []string) []result {
	if len(asked) == 0 {
		return nil
	}
	for i, word := range asked {
		asked[i] = s.shortened(word)
	}
	counts := make([][2]int, len(s.sections)*len(asked)) // in the title and in the text
	holding := make([]int, len(asked))
	for i := range s.sections {
		for j, word := range asked {
			n := [2]int{times(s.sections[i].titleWords, word), times(s.sections[i].textWords, word)}
			counts[i*len(asked)+j] = n
			if n != [2]int{} {
				holding[j]++
			}
		}
	}
	var found []result
	for i := range s.sections {
		score := 0.0
		for j := range asked {
			n := counts[i*len(asked)+j]
			if n == [2]int{} {
				score = 0
				break
			}
			often := 4*float64(n[0]) + float64(n[1])
			score += often / (often + 1.5 + float64(len(s.sections[i].textWords))/2000) * math.Log(1+float64(len(s.sections))/float64(holding[j]))
		}
		if one := &s.sections[i]; strings.Contains(one.titleWords+one.textWords, " "+strings.Join(asked, " ")) {
			score *= 2 // they stand together
		}
		if background.MatchString(s.sections[i].url) {
			score /= 2
		}
		if score > 0 {
			one := &s.sections[i]
			found = append(found, result{Page: one.page, Title: one.title, URL: one.url, score: score})
		}
	}
	slices.SortStableFunc(found, func(a, b result) int { return cmp.Compare(b.score, a.score) })
	found = found[:min(len(found), maxResults)]
	for i := range found {
		at := slices.IndexFunc(s.sections, func(one section) bool { return one.url == found[i].URL })
		found[i].Excerpt = excerpt(s.sections[at].text, asked)
	}
	return found
}

// excerpt shows the text around the first word that was asked for, with all of
// them marked.
func excerpt(text string, asked []string) template.HTML {
	text = strings.Join(strings.Fields(text), " ")
	quoted := make([]string, len(asked))
	for i, word := range asked {
		quoted[i] = regexp.QuoteMeta(word)
	}
	mark := regexp.MustCompile(`(?i)(?:^|[^\pL\pN])(` + strings.Join(quoted, "|") + `)[\pL\pN]*`)
	from := 0
	if at := mark.FindStringIndex(text); at != nil {
		from = max(0, at[0]-maxExcerpt/3)
	}
	for from > 0 && text[from-1] != ' ' {
		from--
	}
	shown := []rune(text[from:])
	more := len(shown) > maxExcerpt
	shown = shown[:min(len(shown), maxExcerpt)]
	var out strings.Builder
	if from > 0 {
		out.WriteString("… ")
	}
	last, part := 0, string(shown)
	if end := strings.LastIndexByte(part, ' '); more && end > 0 {
		part = part[:end]
	}
	for _, at := range mark.FindAllStringSubmatchIndex(part, -1) {
		out.WriteString(template.HTMLEscapeString(part[last:at[2]]))
		out.WriteString("<mark>" + template.HTMLEscapeString(part[at[2]:at[1]]) + "</mark>")
		last = at[1]
	}
	out.WriteString(template.HTMLEscapeString(part[last:]))
	if more {
		out.WriteString(" …")
	}
	return template.HTML(out.String()) //nolint:gosec // escaped above
}
