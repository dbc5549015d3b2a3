package main

import (
	"fmt"
	"strconv"
	"strings"
)

func (c *contract) golang() string {
	var b strings.Builder
	fmt.Fprintf(&b, "// %s\n\npackage kindred\n\nimport (\n\t\"context\"\n\t\"io\"\n\t\"iter\"\n\t\"net/http\"\n\t\"time\"\n)\n\n", notice)
	b.WriteString("// The codes of problems.\nconst (\n")
	for _, code := range c.Codes {
		fmt.Fprintf(&b, "\tCode%s ProblemCode = %q\n", exported(words(code)), code)
	}
	b.WriteString(")\n\n// resources are the operations, by what they are about.\ntype resources struct {\n")
	for _, r := range c.Resources {
		fmt.Fprintf(&b, "%s%s *%sAPI\n", about("\t// ", r.About), exported(r.Words), exported(r.Words))
	}
	b.WriteString("}\n\nfunc newResources(c *caller) resources {\n\treturn resources{\n")
	for _, r := range c.Resources {
		fmt.Fprintf(&b, "\t\t%s: &%[1]sAPI{c},\n", exported(r.Words))
	}
	b.WriteString("\t}\n}\n")
	for _, r := range c.Resources {
		name := exported(r.Words) + "API"
		fmt.Fprintf(&b, "\n%stype %s struct{ c *caller }\n", about("// ", name+": "+r.About), name)
		for _, o := range r.Operations {
			c.golangOperation(&b, name, o)
		}
	}
	for _, n := range c.Types {
		c.golangType(&b, n)
	}
	return b.String()
}

func (c *contract) golangOperation(b *strings.Builder, resource string, o operation) {
	method := exported(o.Words)
	arguments, path := "ctx context.Context", ""
	for i, part := range splitPath(o.Path) {
		if i > 0 {
			path += " + "
		}
		switch name := strings.Trim(part, "{}"); name {
		case part:
			path += strconv.Quote(part)
		case "client_id":
			path += "clientInPath"
		default:
			arguments += ", " + unexported(name) + " string"
			path += "segment(" + unexported(name) + ")"
		}
	}
	request := fmt.Sprintf("request{operation: %q, method: http.Method%s, path: %s", o.ID, strings.ToUpper(o.Method[:1])+strings.ToLower(o.Method[1:]), path)
	if o.Body != nil {
		arguments += ", body " + golangName(o.Body)
		request += ", body: body"
	}
	if o.Lines {
		arguments += ", lines io.Reader"
		request += ", lines: lines"
	}
	for _, flag := range []struct {
		name string
		on   bool
	}{{"takesKey", o.TakesKey}, {"open", o.Open}} {
		if flag.on {
			request += ", " + flag.name + ": true"
		}
	}
	if len(o.Query) > 0 {
		params := exported(words(o.ID)) + "Params"
		arguments += ", params " + params
		request += ", query: params.query()"
		c.golangParams(b, params, o)
	}
	arguments += ", opts ...Option"
	say := func(name, more string) {
		b.WriteString("\n" + about("// ", name+": "+sentence(o.Summary), o.About, more, o.Method+" "+o.Path))
	}
	switch {
	case o.Streams:
		say(method, goesOn)
		fmt.Fprintf(b, "func (r *%s) %s(%s) iter.Seq2[*Event, error] {\n\treturn followed(ctx, r.c, %s}, opts)\n}\n", resource, method, arguments, request)
	case o.Item != nil:
		say(method, "It fetches a page at a time and ends with the first error.")
		fmt.Fprintf(b, "func (r *%s) %s(%s) iter.Seq2[%s, error] {\n\treturn items[%[4]s](ctx, r.c, %s}, opts)\n}\n",
			resource, method, arguments, golangName(o.Item), request)
		say(method+"Page", "It fetches one page.")
		fmt.Fprintf(b, "func (r *%s) %sPage(%s) (*%s, error) {\n\treturn answer[%[4]s](ctx, r.c, %s}, opts)\n}\n", resource, method, arguments, golangName(o.Answer), request)
	case o.Answer == nil:
		say(method, "")
		fmt.Fprintf(b, "func (r *%s) %s(%s) error {\n\treturn r.c.done(ctx, %s}, opts)\n}\n", resource, method, arguments, request)
	default:
		say(method, "")
		fmt.Fprintf(b, "func (r *%s) %s(%s) (*%s, error) {\n\treturn answer[%[4]s](ctx, r.c, %s}, opts)\n}\n", resource, method, arguments, golangName(o.Answer), request)
	}
	if o.Pulls {
		b.WriteString("\n" + about("// ", "Pull: "+sentence(o.Summary), pulls+" "+goesOn, o.Method+" "+o.Path))
		fmt.Fprintf(b, "func (r *%s) Pull(%s) iter.Seq2[*Event, error] {\n\treturn pulled(ctx, r.c, %s}, params.Wait != nil && *params.Wait > 0, opts)\n}\n", resource, arguments, request)
	}
	if o.Later != nil {
		say(method+"Later", "It returns once the lines are received; they are applied behind.")
		fmt.Fprintf(b, "func (r *%s) %sLater(%s) (*%s, error) {\n\treturn answer[%[4]s](ctx, r.c, %s}.with(\"async\", \"true\"), opts)\n}\n",
			resource, method, arguments, golangName(o.Later), request)
	}
	if o.CSV {
		say(method+"CSV", asCSV+" A connection that breaks once something was written ends it.")
		list, asked := strings.Replace(arguments, ", opts ", ", to io.Writer, opts ", 1), request
		if len(o.ofCSV()) == 0 {
			list = strings.Replace(list, ", params "+exported(words(o.ID))+"Params", "", 1)
			asked = strings.Replace(asked, ", query: params.query()", "", 1)
		}
		fmt.Fprintf(b, "func (r *%s) %sCSV(%s) error {\n\treturn written(ctx, r.c, %s}, to, opts)\n}\n", resource, method, list, asked)
	}
	if o.Exports {
		fmt.Fprintf(b, "\n// Export streams the whole history, a line of JSON each. Its last line is a signed head; without it the export is not complete.\n//\n// GET %s\nfunc (r *%s) Export(ctx context.Context, opts ...Option) iter.Seq2[[]byte, error] {\n\treturn exported(ctx, r.c, %s}, opts)\n}\n",
			o.Path, resource, strings.Replace(request, ", query: params.query()", "", 1))
	}
}

func (c *contract) golangParams(b *strings.Builder, name string, o operation) {
	fmt.Fprintf(b, "\n// %s narrows what is answered; what is left out is not sent.\ntype %[1]s struct {\n", name)
	for _, p := range o.Query {
		fmt.Fprintf(b, "%s\t%s %s `json:%q`\n", about("\t// ", sentence(p.About)), exported(words(p.Name)), golangParameter(p.Type), p.Name+",omitzero")
	}
	fmt.Fprintf(b, "}\n\nfunc (p %s) query() query {\n\tvar q query\n", name)
	for _, p := range o.Query {
		fmt.Fprintf(b, "\tq.add(%q, p.%s)\n", p.Name, exported(words(p.Name)))
	}
	b.WriteString("\treturn q\n}\n")
}

func (c *contract) golangType(b *strings.Builder, n *named) {
	switch {
	case n.Name == "EventDelivery":
		// Event, written by hand, is all of them.
		b.WriteString("\n// dataOf is what an event of a type carries, empty; nil of a type that is none of these.\nfunc dataOf(t EventType) any {\n\tswitch t {\n")
		for _, body := range n.Union {
			var kind, data string
			for _, f := range c.byName[body.Name].Fields {
				switch f.Name {
				case "event_type":
					kind = f.Type.Values[0]
				case "data":
					data = f.Type.Name
				}
			}
			fmt.Fprintf(b, "\tcase EventType%s:\n\t\treturn new(%s)\n", exported(words(kind)), data)
		}
		b.WriteString("\t}\n\treturn nil\n}\n")
	case n.ofUnion || strings.HasSuffix(n.Name, "Delivery") && n.Name != "Delivery":
	case len(n.Values) > 0:
		fmt.Fprintf(b, "\n%stype %s string\n\nconst (\n", about("// ", strings.TrimSpace(n.Name+": "+sentence(n.About))), n.Name)
		for _, v := range n.Values {
			fmt.Fprintf(b, "\t%s%s %s = %q\n", n.Name, exported(words(v)), n.Name, v)
		}
		b.WriteString(")\n")
		if n.Name == "EventType" { // of which programs offer them all
			fmt.Fprintf(b, "\n// %[1]ss are all there are.\nfunc %[1]ss() []%[1]s {\n\treturn []%[1]s{\n", n.Name)
			for _, v := range n.Values {
				fmt.Fprintf(b, "\t\t%s%s,\n", n.Name, exported(words(v)))
			}
			b.WriteString("\t}\n}\n")
		}
	default:
		fields := n.Fields
		if fields == nil {
			fields = c.merged(n)
		}
		fmt.Fprintf(b, "\n%stype %s struct {\n", about("// ", strings.TrimSpace(n.Name+": "+sentence(n.About))), n.Name)
		for _, f := range fields {
			t, tag := golangName(f.Type), f.Name
			switch {
			case f.Type.Nullable && !f.Required:
				t, tag = "Nullable["+t+"]", f.Name+",omitzero"
			case f.Type.Nullable && f.Type.Kind != array && f.Type.Kind != dictionary:
				t = "*" + t
			case !f.Required:
				tag += ",omitzero"
				if f.Type.Kind != array && f.Type.Kind != dictionary && f.Type.Kind != anything {
					t = "*" + t
				}
			}
			fmt.Fprintf(b, "%s\t%s %s `json:%q`\n", about("\t// ", sentence(f.About)), exported(words(f.Name)), t, tag)
		}
		b.WriteString("}\n")
	}
}

// merged are the fields of all members of a union, required where all require it.
func (c *contract) merged(n *named) []field {
	var fields []field
	at, times := map[string]int{}, map[string]int{}
	for _, member := range n.Union {
		for _, f := range c.byName[member.Name].Fields {
			i, found := at[f.Name]
			if !found {
				at[f.Name], i = len(fields), len(fields)
				fields = append(fields, f)
			}
			if f.Required {
				times[f.Name]++
			}
			if len(f.Type.Values) > 0 {
				fields[i].About = "It says which of the other fields there are."
			}
		}
	}
	for i, f := range fields {
		fields[i].Required = times[f.Name] == len(n.Union)
	}
	return fields
}

func golangName(t *typ) string {
	switch t.Kind {
	case integer:
		return "int64"
	case number:
		return "float64"
	case boolean:
		return "bool"
	case timestamp:
		return "time.Time"
	case anything:
		return "any"
	case array:
		return "[]" + golangName(t.Element)
	case dictionary:
		if t.Element.Kind == anything {
			return "Object"
		}
		element := golangName(t.Element)
		if t.Element.Nullable {
			element = "*" + element
		}
		return "map[string]" + element
	case reference:
		return t.Name
	default:
		return "string"
	}
}

func golangParameter(t *typ) string {
	switch t.Kind {
	case integer, boolean, number:
		return "*" + golangName(t)
	default:
		return golangName(t)
	}
}

func unexported(name string) string {
	w := words(name)
	if len(w) == 1 {
		return w[0]
	}
	return w[0] + exported(w[1:])
}

// splitPath cuts a path before and after each parameter.
func splitPath(path string) []string {
	var parts []string
	for path != "" {
		begin := strings.Index(path, "{")
		switch {
		case begin < 0:
			return append(parts, path)
		case begin > 0:
			parts, path = append(parts, path[:begin]), path[begin:]
		default:
			end := strings.Index(path, "}") + 1
			parts, path = append(parts, path[:end]), path[end:]
		}
	}
	return parts
}
