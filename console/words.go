package console

import (
	_ "embed" // of the words
	"encoding/json"
	"fmt"
	"html/template"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// wordsFile holds all that the pages say, by page and name. Texts of templates may hold the
// plain tags of HTML; what is written for a place, as in {0}, is escaped. Of two texts with
// a bar between them the first is for the number 1 in the first place.
//
//go:embed pages/en.json
var wordsFile []byte

// words are the texts by "page.name".
var words = sync.OnceValue(func() map[string]string {
	var pages map[string]map[string]string
	if err := json.Unmarshal(wordsFile, &pages); err != nil {
		panic(fmt.Sprintf("console: pages/en.json: %v", err)) // the binary is broken
	}
	all := map[string]string{}
	for page, texts := range pages {
		for name, text := range texts {
			all[page+"."+name] = text
		}
	}
	return all
})

var places = regexp.MustCompile(`\{\d\}`)

// filled fills the places of a text.
func filled(key string, args []any, write func(any) string) (string, error) {
	text, ok := words()[key]
	if !ok {
		return "", fmt.Errorf("console: no text is named %q", key)
	}
	if one, others, two := strings.Cut(text, " | "); two {
		if text = others; len(args) > 0 && write(args[0]) == "1" {
			text = one
		}
	}
	return places.ReplaceAllStringFunc(text, func(place string) string {
		if n, err := strconv.Atoi(place[1:2]); err == nil && n < len(args) {
			return write(args[n])
		}
		return ""
	}), nil
}

// tell is a text for a template.
func tell(key string, args ...any) (template.HTML, error) {
	text, err := filled(key, args, func(v any) string {
		if safe, ok := v.(template.HTML); ok {
			return string(safe)
		}
		return template.HTMLEscapeString(fmt.Sprint(deref(v)))
	})
	return template.HTML(text), err //nolint:gosec // the file is ours, and what fills it is escaped
}

// say is a text without tags, for what is put into a page later. It panics where there is
// none: a test says that there is.
func say(key string, args ...any) string {
	text, err := filled(key, args, func(v any) string { return fmt.Sprint(v) })
	if err != nil {
		panic(err)
	}
	return text
}

// section are the texts of one page or file by their names, as JSON.
func section(page string) string {
	some := map[string]string{}
	for key, text := range words() {
		if name, ok := strings.CutPrefix(key, page+"."); ok {
			some[name] = text
		}
	}
	out, err := json.Marshal(some)
	if err != nil {
		panic(err) // texts always can
	}
	return string(out)
}
