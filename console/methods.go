package console

import (
	_ "embed" // of the methods
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// methodsFile is generated from the contract, as the SDKs are.
//
//go:embed methods.gen.json
var methodsFile []byte

// method is one of the SDKs, which makes a call of the API.
type method struct {
	HTTP, Path         string
	TypeScript, Python string
	Body               bool
	Query              map[string]string // the parameters that are no text: number, boolean or list
}

var methods = sync.OnceValues(func() (all []method, err error) {
	return all, json.Unmarshal(methodsFile, &all)
})

// sdk finds the method that makes a call, its arguments, and its query, as JSON.
func (c Call) sdk() (m method, arguments []string, query [][2]string, ok bool) {
	all, err := methods()
	at, errURL := url.Parse(c.Path)
	if err != nil || errURL != nil {
		return m, nil, nil, false
	}
	for _, m = range all {
		if m.HTTP == c.Method {
			if arguments, ok = fitted(m.Path, at.EscapedPath()); ok {
				break
			}
		}
	}
	if !ok {
		return m, nil, nil, false
	}
	asked := at.Query()
	names := make([]string, 0, len(asked))
	for name := range asked {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		query = append(query, [2]string{name, m.written(name, asked.Get(name))})
	}
	return m, arguments, query, true
}

// fitted returns what stands in a path for the parameters of a template, but for the
// client, which the token tells.
func fitted(template, path string) (arguments []string, ok bool) {
	wanted, got := strings.Split(template, "/"), strings.Split(path, "/")
	if len(wanted) != len(got) {
		return nil, false
	}
	for i, part := range wanted {
		if !strings.HasPrefix(part, "{") {
			if part != got[i] {
				return nil, false
			}
			continue
		}
		text, err := url.PathUnescape(got[i])
		if err != nil {
			return nil, false
		}
		if part != "{client_id}" {
			arguments = append(arguments, quoted(text))
		}
	}
	return arguments, true
}

// written writes a parameter's value as JSON, which both languages read.
func (m method) written(name, value string) string {
	switch m.Query[name] {
	case "number":
		if json.Valid([]byte(value)) {
			return value
		}
	case "boolean":
		if value == "true" || value == "false" {
			return value
		}
	case "list":
		parts := strings.Split(value, ",")
		for i := range parts {
			parts[i] = quoted(parts[i])
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return quoted(value)
}

func quoted(text string) string {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(text); err != nil {
		return `""` // no text fails
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// TypeScript is the call with the SDK; "": there is no method for it.
func (c Call) TypeScript() string {
	m, arguments, query, ok := c.sdk()
	if !ok {
		return ""
	}
	if m.Body {
		arguments = append(arguments, "body")
	}
	if len(query) > 0 {
		pairs := make([]string, len(query))
		for i, q := range query {
			pairs[i] = q[0] + ": " + q[1]
		}
		arguments = append(arguments, "{ "+strings.Join(pairs, ", ")+" }")
	}
	return "await kindred." + m.TypeScript + "(" + strings.Join(arguments, ", ") + ")"
}

// Python is the call with the SDK; "": there is no method for it.
func (c Call) Python() string {
	m, arguments, query, ok := c.sdk()
	if !ok {
		return ""
	}
	if m.Body {
		arguments = append(arguments, "body")
	}
	for _, q := range query {
		value := q[1]
		if m.Query[q[0]] == "boolean" {
			value = strings.ToUpper(value[:1]) + value[1:]
		}
		arguments = append(arguments, q[0]+"="+value)
	}
	return "kindred." + m.Python + "(" + strings.Join(arguments, ", ") + ")"
}

// ways are the calls of a page in each language.
func ways(made []Call) (all []struct{ Name, Text string }) {
	for _, way := range []struct {
		name  string
		write func(Call) string
	}{{"curl", Call.Curl}, {"TypeScript", Call.TypeScript}, {"Python", Call.Python}} {
		var lines []string
		for _, c := range made {
			if line := way.write(c); line != "" {
				lines = append(lines, line)
			}
		}
		all = append(all, struct{ Name, Text string }{way.name, strings.Join(lines, "\n")})
	}
	return all
}
