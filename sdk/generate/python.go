package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

func (c *contract) pythonTypes() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\"\"\"What operations take and answer.\n\nThey are dictionaries, as JSON has them. Times are texts of RFC 3339 in UTC.\n\"\"\"\n\nfrom __future__ import annotations\n\nfrom typing import Any, Literal, NotRequired, TypedDict, Union\n\n", notice)
	b.WriteString("ProblemCode = Literal[\n")
	for _, code := range c.Codes {
		fmt.Fprintf(&b, "    %q,\n", code)
	}
	b.WriteString("]\n")
	var unions []*named
	for _, n := range c.Types {
		switch {
		case n.Union != nil:
			unions = append(unions, n)
		case len(n.Values) > 0:
			fmt.Fprintf(&b, "\n%s = %s\n", n.Name, literal(n.Values))
		}
	}
	for _, n := range c.Types {
		if n.Union == nil && len(n.Values) == 0 {
			pythonType(&b, n)
		}
	}
	for _, n := range unions {
		var members []string
		for _, u := range n.Union {
			members = append(members, u.Name)
		}
		fmt.Fprintf(&b, "\n\n%s = Union[%s]\n", n.Name, strings.Join(members, ", "))
	}
	return ownModule.ReplaceAllString(b.String(), "$1")
}

// ownModule is how methods name the module that types.py is.
var ownModule = regexp.MustCompile(`\bt\.([A-Z])`)

func pythonType(b *strings.Builder, n *named) {
	for _, f := range n.Fields {
		if keywords[f.Name] {
			pythonTypeByCall(b, n)
			return
		}
	}
	fmt.Fprintf(b, "\n\nclass %s(TypedDict):\n", n.Name)
	if n.About != "" {
		b.WriteString(docstring("    ", sentence(n.About)))
	}
	for _, f := range n.Fields {
		t := pythonName(f.Type)
		if !f.Required {
			t = "NotRequired[" + t + "]"
		}
		fmt.Fprintf(b, "%s    %s: %s\n", about("    # ", sentence(f.About)), f.Name, t)
	}
	if len(n.Fields) == 0 && n.About == "" {
		b.WriteString("    pass\n")
	}
}

// pythonTypeByCall writes a type with a field that Python would take for a word of
// its own.
func pythonTypeByCall(b *strings.Builder, n *named) {
	fmt.Fprintf(b, "\n\n%s%s = TypedDict(\n    %q,\n    {\n", about("# ", sentence(n.About)), n.Name, n.Name)
	for _, f := range n.Fields {
		t := strconv.Quote(pythonName(f.Type)) // a name may stand further down
		if !f.Required {
			t = "NotRequired[" + t + "]"
		}
		fmt.Fprintf(b, "%s        %q: %s,\n", about("        # ", sentence(f.About)), f.Name, t)
	}
	b.WriteString("    },\n)\n")
}

func (c *contract) pythonMethods() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\nfrom __future__ import annotations\n\nfrom collections.abc import AsyncIterator, Sequence\nfrom typing import Any, Literal\n\nfrom . import types as t\nfrom ._async_client import AsyncCaller, AsyncLines\nfrom ._common import CLIENT, Call, OnAnswer, Request, lines_of, segment\n", notice)
	b.WriteString("\n\nclass AsyncResources:\n    \"\"\"The operations, by what they are about.\"\"\"\n\n    def __init__(self, caller: AsyncCaller) -> None:\n")
	for _, r := range c.Resources {
		fmt.Fprintf(&b, "        self.%s = Async%sAPI(caller)\n", snake(r.Words), exported(r.Words))
	}
	for _, r := range c.Resources {
		fmt.Fprintf(&b, "\n\nclass Async%sAPI:\n    \"\"\"%s\"\"\"\n\n    def __init__(self, caller: AsyncCaller) -> None:\n        self._c = caller\n", exported(r.Words), r.About)
		for _, o := range r.Operations {
			c.pythonOperation(&b, o)
		}
	}
	return b.String()
}

func (c *contract) pythonOperation(b *strings.Builder, o operation) {
	arguments := "self"
	path := `f"`
	for _, part := range splitPath(o.Path) {
		switch name := strings.Trim(part, "{}"); name {
		case part:
			path += part
		case "client_id":
			path += "{CLIENT}"
		default:
			arguments += ", " + name + ": str"
			path += "{segment(" + name + ")}"
		}
	}
	if !strings.Contains(path, "{") {
		path = path[1:]
	}
	request := fmt.Sprintf("Request(%q, %q, %s\"", o.ID, o.Method, path)
	if o.Body != nil {
		arguments += ", body: " + pythonName(o.Body)
		if o.BodyRequired {
			request += ", body=body"
		} else {
			arguments += " | None = None"
			request += ", body=body or {}"
		}
	}
	if o.Lines {
		arguments += ", lines: AsyncLines"
		request += ", lines=lines_of(lines), csv=csv"
	}
	if o.TakesKey {
		request += ", takes_key=True"
	}
	if o.Open {
		request += ", open=True"
	}
	plain, named := request, arguments+", *"
	with := func(params []parameter) (arguments, request string) {
		var query []string
		arguments, request = named, plain
		for _, p := range params {
			name := pythonArgument(p.Name)
			arguments += ", " + name + ": " + strings.Replace(pythonName(p.Type), "list[", "Sequence[", 1) // list is a method here
			if !p.Required {
				arguments += " | None = None"
			}
			query = append(query, fmt.Sprintf("%q: %s", p.Name, name))
		}
		if len(query) > 0 {
			request += ", query={" + strings.Join(query, ", ") + "}"
		}
		return arguments, request
	}
	arguments, request = with(o.Query)
	options := ""
	var passed []string
	for _, option := range []struct {
		name, declared string
		on             bool
	}{
		{"csv", "bool = False", o.Lines},
		{"idempotency_key", "str | None = None", o.TakesKey},
		{"if_match", "str | None = None", o.IfMatch},
		{"if_none_match", "str | None = None", o.IfNoneMatch},
		{"eventual", "bool = False", o.Eventual},
		{"timeout", "float | None = None", true},
		{"on_answer", "OnAnswer | None = None", true},
	} {
		if option.on {
			options += ", " + option.name + ": " + option.declared
		}
		if option.on && option.name != "csv" { // which the request has
			passed = append(passed, option.name+"="+option.name)
		}
	}
	call := "Call(" + strings.Join(passed, ", ") + ")"
	name := snake(o.Words)
	if name == "import" {
		name = "import_"
	}
	write := func(keyword, name, more, result, body string) {
		fmt.Fprintf(b, "\n    %s %s(%s%s) -> %s:\n%s        %s\n", keyword, name, arguments, options, result,
			docstring("        ", sentence(o.Summary), o.About, more, "``"+o.Method+" "+o.Path+"``"), body)
	}
	switch {
	case o.Streams:
		write("def", name, goesOn, "AsyncIterator[t.PublicEvent]", "return self._c.followed("+request+"), "+call+")")
	case o.Item != nil:
		write("def", name, "It fetches a page at a time.", "AsyncIterator["+pythonName(o.Item)+"]", "return self._c.items("+request+"), "+call+")")
		write("async def", name+"_page", "It fetches one page.", pythonName(o.Answer), "return await self._c.answer("+request+"), "+call+")  # type: ignore[no-any-return]")
	case o.Answer == nil:
		write("async def", name, "", "None", "await self._c.done("+request+"), "+call+")")
	default:
		write("async def", name, "", pythonName(o.Answer), "return await self._c.answer("+request+"), "+call+")  # type: ignore[no-any-return]")
	}
	if o.Pulls {
		write("def", "pull", pulls+" "+goesOn, "AsyncIterator[t.PublicEvent]", "return self._c.pulled("+request+"), "+call+")")
	}
	if o.Later != nil {
		write("async def", "import_later", "It returns once the lines are received; they are applied behind.", pythonName(o.Later),
			"return await self._c.answer("+strings.Replace(request, "query={", `query={"async": True, `, 1)+"), "+call+")  # type: ignore[no-any-return]")
	}
	if o.CSV {
		arguments, request = with(o.ofCSV())
		write("def", name+"_csv", asCSV, "AsyncIterator[str]", "return self._c.csv("+request+"), "+call+")")
	}
	if o.Exports {
		fmt.Fprintf(b, "\n    def export(self, *, personal: Literal[\"sealed\", \"open\"] | None = None, timeout: float | None = None) -> AsyncIterator[bytes]:\n%s        return self._c.exported(%s, query={\"personal\": personal}), Call(timeout=timeout))\n",
			docstring("        ", "Stream the whole history, a line of JSON each. Its last line is a signed head; without it the export is not complete.",
				"`personal=\"open\"` shows what is sealed, opened; it takes the scope `admin`."), plain)
	}
}

// keywords of Python, which are no names.
var keywords = func() map[string]bool {
	words := map[string]bool{}
	for word := range strings.FieldsSeq("and as assert async await break class continue def del elif else except finally for from global if import in is lambda nonlocal not or pass raise return try while with yield") {
		words[word] = true
	}
	return words
}()

func pythonArgument(name string) string {
	if keywords[name] {
		return name + "_"
	}
	return name
}

func literal(values []string) string {
	var quoted []string
	for _, v := range values {
		quoted = append(quoted, strconv.Quote(v))
	}
	return "Literal[" + strings.Join(quoted, ", ") + "]"
}

// pythonName is a type in types.py, or, of a class there, as the methods see it.
func pythonName(t *typ) string {
	name := "str"
	switch t.Kind {
	case integer:
		name = "int"
	case number:
		name = "float"
	case boolean:
		name = "bool"
	case anything:
		name = "Any"
	case array:
		name = "list[" + pythonName(t.Element) + "]"
	case dictionary:
		name = "dict[str, " + pythonName(t.Element) + "]"
	case reference:
		name = "t." + t.Name
	case text, timestamp:
		if len(t.Values) > 0 {
			name = literal(t.Values)
		}
	}
	if t.Nullable {
		name += " | None"
	}
	return name
}

func docstring(indent string, paragraphs ...string) string {
	text := strings.TrimPrefix(about(indent, paragraphs...), indent)
	text = strings.ReplaceAll(text, `\`, `\\`)
	if strings.Count(text, "\n") == 1 {
		return indent + `"""` + strings.TrimSuffix(text, "\n") + "\"\"\"\n"
	}
	return indent + `"""` + text + indent + "\"\"\"\n"
}

var synchronousWords = []struct {
	pattern *regexp.Regexp
	by      string
}{
	{regexp.MustCompile(`\basync (def|for|with)\b`), "$1"},
	{regexp.MustCompile(`\bawait `), ""},
	{regexp.MustCompile(`\bAsync(\w+)`), "$1"},
	{regexp.MustCompile(`\b_async_(client|api)\b`), "_sync_$1"},
	{regexp.MustCompile(`\b__a(enter|exit|iter|next)__`), "__${1}__"},
	{regexp.MustCompile(`\baclose\b`), "close"},
	{regexp.MustCompile(`\baiter_(raw|bytes|lines)\b`), "iter_$1"},
	{regexp.MustCompile(`\baread\b`), "read"},
	{regexp.MustCompile(`\b(answered|pause|sent)_async\b`), "$1"},
	{regexp.MustCompile(`\bStopAsyncIteration\b`), "StopIteration"},
}

// synchronous writes asynchronous Python as plain Python: the two differ in
// words alone.
func synchronous(text string) string {
	for _, w := range synchronousWords {
		text = w.pattern.ReplaceAllString(text, w.by)
	}
	return text
}
