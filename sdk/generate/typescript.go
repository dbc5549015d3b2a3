package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// typescriptTypes are what requests and answers hold. They import nothing, so that whatever the
// operations are made with may use them.
func (c *contract) typescriptTypes() string {
	var b strings.Builder
	fmt.Fprintf(&b, "// %s\n\n/** What a problem is called; a newer service may have more. */\nexport type ProblemCode =\n", notice)
	for _, code := range c.Codes {
		fmt.Fprintf(&b, "  | %q\n", code)
	}
	b.WriteString("  | (string & {});\n")
	for _, n := range c.Types {
		c.typescriptType(&b, n)
	}
	return b.String()
}

// typescript are the operations.
func (c *contract) typescript() string {
	operations := c.typescriptOperations()
	var used []string
	for _, n := range c.Types {
		if regexp.MustCompile(`\b` + n.Name + `\b`).MatchString(operations) {
			used = append(used, n.Name)
		}
	}
	return fmt.Sprintf("// %s\n\nimport { answer, clientInPath, csv, done, exported, items, segment } from \"./caller.js\";\nimport type { CallOptions, Caller, ExportOptions, ImportOptions, Lines } from \"./caller.js\";\nimport { followed, pulled } from \"./events.js\";\nimport type {\n  %s,\n} from \"./types.gen.js\";\n\n%s",
		notice, strings.Join(used, ",\n  "), operations)
}

func (c *contract) typescriptOperations() string {
	var b strings.Builder
	b.WriteString("/** The operations, by what they are about. */\nexport abstract class Resources {\n")
	for _, r := range c.Resources {
		fmt.Fprintf(&b, "  /** %s */\n  readonly %s: %sAPI;\n", r.About, camel(r.Words), exported(r.Words))
	}
	b.WriteString("\n  /** @internal */\n  protected constructor(c: Caller) {\n")
	for _, r := range c.Resources {
		fmt.Fprintf(&b, "    this.%s = new %sAPI(c);\n", camel(r.Words), exported(r.Words))
	}
	b.WriteString("  }\n}\n")
	for _, r := range c.Resources {
		fmt.Fprintf(&b, "\n/** %s */\nexport class %sAPI {\n  readonly #c: Caller;\n\n  /** @internal */\n  constructor(c: Caller) {\n    this.#c = c;\n  }\n", r.About, exported(r.Words))
		for _, o := range r.Operations {
			c.typescriptOperation(&b, o)
		}
		b.WriteString("}\n")
	}
	for _, r := range c.Resources {
		for _, o := range r.Operations {
			if len(o.Query) == 0 {
				continue
			}
			fmt.Fprintf(&b, "\n/** Narrows what `%s` answers; what is left out is not sent. */\nexport interface %sParams {\n", o.ID, exported(words(o.ID)))
			for _, p := range o.Query {
				optional, absent := "?", " | undefined" // also under exactOptionalPropertyTypes
				if p.Required {
					optional, absent = "", ""
				}
				fmt.Fprintf(&b, "%s  %s%s: %s%s;\n", javadoc("  ", p.About), p.Name, optional, typescriptName(p.Type), absent)
			}
			b.WriteString("}\n")
		}
	}
	return b.String()
}

func (c *contract) typescriptOperation(b *strings.Builder, o operation) {
	var arguments []string
	path := "`"
	for _, part := range splitPath(o.Path) {
		switch name := strings.Trim(part, "{}"); name {
		case part:
			path += part
		case "client_id":
			path += "${clientInPath}"
		default:
			arguments = append(arguments, camel(words(name))+": string")
			path += "${segment(" + camel(words(name)) + ")}"
		}
	}
	request := fmt.Sprintf("{ operation: %q, method: %q, path: %s`", o.ID, o.Method, path)
	if o.Body != nil {
		body := "body: " + typescriptName(o.Body)
		if !o.BodyRequired {
			body += " = {}"
		}
		arguments = append(arguments, body)
		request += ", body"
	}
	if o.Lines {
		arguments = append(arguments, "lines: Lines<NewUser | string>")
		request += ", lines, csv: options?.csv === true"
	}
	if o.TakesKey {
		request += ", takesKey: true"
	}
	if o.Open {
		request += ", open: true"
	}
	plain, required := request, slices.Clone(arguments)
	if len(o.Query) > 0 {
		params := "params: " + exported(words(o.ID)) + "Params"
		if !anyRequired(o.Query) {
			params += " = {}"
		}
		arguments = append(arguments, params)
		request += ", query: { ...params }"
	}
	options := "options?: CallOptions"
	if o.Lines {
		options = "options?: ImportOptions"
	}
	list := strings.Join(append(arguments, options), ", ")
	name := camel(o.Words)
	write := func(name, more, result, body string) {
		fmt.Fprintf(b, "\n%s  %s(%s): %s {\n    return %s;\n  }\n", javadoc("  ", sentence(o.Summary), o.About, more, "`"+o.Method+" "+o.Path+"`"), name, list, result, body)
	}
	switch {
	case o.Streams:
		write(name, goesOn, "AsyncGenerator<PublicEvent, void, undefined>", "followed(this.#c, "+request+" }, options)")
	case o.Item != nil:
		write(name, "It fetches a page at a time.", "AsyncGenerator<"+typescriptName(o.Item)+", void, undefined>",
			fmt.Sprintf("items<%s>(this.#c, %s }, options)", typescriptName(o.Item), request))
		write(name+"Page", "It fetches one page.", "Promise<"+typescriptName(o.Answer)+">", "answer(this.#c, "+request+" }, options)")
	case o.Answer == nil:
		write(name, "", "Promise<void>", "done(this.#c, "+request+" }, options)")
	default:
		write(name, "", "Promise<"+typescriptName(o.Answer)+">", "answer(this.#c, "+request+" }, options)")
	}
	if o.Pulls {
		write("pull", pulls+" "+goesOn, "AsyncGenerator<PublicEvent, void, undefined>", "pulled(this.#c, "+request+" }, options)")
	}
	if o.Later != nil {
		write(name+"Later", "It returns once the lines are received; they are applied behind.", "Promise<"+typescriptName(o.Later)+">",
			"answer(this.#c, "+strings.Replace(request, "...params", "...params, async: true", 1)+" }, options)")
	}
	if o.CSV {
		if len(o.ofCSV()) == 0 {
			list, request = strings.Join(append(required, options), ", "), plain
		}
		write(name+"Csv", asCSV, "AsyncGenerator<string, void, undefined>", "csv(this.#c, "+request+" }, options)")
	}
	if o.Exports {
		fmt.Fprintf(b, "\n  /**\n   * Streams the whole history, a line of JSON each. Its last line is a signed head; without it the\n   * export is not complete.\n   */\n  export(options: ExportOptions = {}): AsyncGenerator<string, void, undefined> {\n    return exported(this.#c, %s, query: { personal: options.personal } }, options);\n  }\n",
			strings.Replace(request, ", query: { ...params }", "", 1))
	}
}

func (c *contract) typescriptType(b *strings.Builder, n *named) {
	head := "\n" + javadoc("", sentence(n.About))
	switch {
	case n.Union != nil:
		var members []string
		for _, u := range n.Union {
			members = append(members, u.Name)
		}
		fmt.Fprintf(b, "%sexport type %s = %s;\n", head, n.Name, strings.Join(members, " | "))
	case len(n.Values) > 0:
		fmt.Fprintf(b, "%sexport type %s = %s;\n", head, n.Name, union(n.Values))
	default:
		fmt.Fprintf(b, "%sexport interface %s {\n", head, n.Name)
		for _, f := range n.Fields {
			optional := "?"
			if f.Required {
				optional = ""
			}
			fmt.Fprintf(b, "%s  %s%s: %s;\n", javadoc("  ", sentence(f.About)), f.Name, optional, typescriptName(f.Type))
		}
		b.WriteString("}\n")
	}
}

func union(values []string) string {
	var quoted []string
	for _, v := range values {
		quoted = append(quoted, strconv.Quote(v))
	}
	return strings.Join(quoted, " | ")
}

func typescriptName(t *typ) string {
	name := "string"
	switch t.Kind {
	case integer, number:
		name = "number"
	case boolean:
		name = "boolean"
	case anything:
		name = "unknown"
	case array:
		name = "Array<" + typescriptName(t.Element) + ">"
	case dictionary:
		name = "Record<string, " + typescriptName(t.Element) + ">"
	case reference:
		name = t.Name
	case text, timestamp:
		if len(t.Values) > 0 {
			name = union(t.Values)
		}
	}
	if t.Nullable {
		name += " | null"
	}
	return name
}

func anyRequired(params []parameter) bool {
	for _, p := range params {
		if p.Required {
			return true
		}
	}
	return false
}

func javadoc(indent string, paragraphs ...string) string {
	text := about(indent+" * ", paragraphs...)
	switch {
	case text == "":
		return ""
	case strings.Count(text, "\n") == 1:
		return indent + "/** " + strings.TrimSpace(strings.TrimPrefix(text, indent+" * ")) + " */\n"
	default:
		return indent + "/**\n" + text + indent + " */\n"
	}
}
