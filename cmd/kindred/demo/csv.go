package demo

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// missing is how a table of people says that a value is not known.
const missing = "?"

// table is a CSV file of people, a row each. Fields may be quoted, and may have
// spaces around them; a field that is empty or a ? is a missing value.
type table struct {
	path   string
	header []string // nil: the file's first line
	id     string
	ignore []string
	limit  int
}

// people reads the file. The first error ends it.
func (t table) people() iter.Seq2[person, error] {
	return func(yield func(person, error) bool) {
		if err := t.read(func(p person) bool { return yield(p, nil) }); err != nil {
			yield(person{}, err)
		}
	}
}

func (t table) read(take func(person) bool) error {
	f, err := os.Open(t.path)
	if err != nil {
		return err
	}
	defer f.Close()
	buffered := bufio.NewReader(f)
	if mark, err := buffered.Peek(3); err == nil && string(mark) == "\ufeff" {
		if _, err := buffered.Discard(len(mark)); err != nil {
			return err
		}
	}
	rows := csv.NewReader(buffered)
	rows.TrimLeadingSpace = true
	rows.ReuseRecord = true
	header := t.header
	if len(header) == 0 {
		first, err := rows.Read()
		if err != nil {
			return t.explain(err, 0, 0)
		}
		header = slices.Clone(first)
	}
	c, err := t.columns(header)
	if err != nil {
		return err
	}
	rows.FieldsPerRecord = len(c.names)
	for n := 1; t.limit == 0 || n <= t.limit; n++ {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return t.explain(err, len(row), len(c.names))
		}
		p, err := c.person(row, n)
		if err != nil {
			line, _ := rows.FieldPos(0)
			return fmt.Errorf("%s, line %d: %w", t.name(), line, err)
		}
		if !take(p) {
			return nil
		}
	}
	return nil
}

func (t table) name() string { return filepath.Base(t.path) }

// explain says what is wrong with a file, and where.
func (t table) explain(err error, got, want int) error {
	wrong, ok := errors.AsType[*csv.ParseError](err)
	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%s is empty", t.name())
	case ok && errors.Is(err, csv.ErrFieldCount):
		return fmt.Errorf("%s, line %d has %d fields, the header has %d; see --header", t.name(), wrong.Line, got, want)
	case ok:
		return fmt.Errorf("%s, line %d, column %d: %w", t.name(), wrong.Line, wrong.Column, wrong.Err)
	}
	return fmt.Errorf("read %s: %w", t.name(), err)
}

// columns is what becomes of each field of a row.
type columns struct {
	names   []string
	id      int // -1: the row's number
	ignored []bool
}

func (t table) columns(header []string) (columns, error) {
	c := columns{id: -1, ignored: make([]bool, len(header))}
	for _, name := range header {
		c.names = append(c.names, strings.TrimSpace(name))
	}
	for i, name := range c.names {
		if name == "" || slices.Index(c.names, name) != i {
			return columns{}, fmt.Errorf("column %d of the header of %s has the name %q, which is empty or taken", i+1, t.name(), name)
		}
	}
	for _, name := range t.ignore {
		at := slices.Index(c.names, strings.TrimSpace(name))
		if at < 0 {
			return columns{}, t.noColumn("--ignore", name, c.names)
		}
		c.ignored[at] = true
	}
	if t.id != "" {
		if c.id = slices.Index(c.names, t.id); c.id < 0 {
			return columns{}, t.noColumn("--id", t.id, c.names)
		}
		c.ignored[c.id] = true
	}
	return c, nil
}

func (t table) noColumn(flag, name string, names []string) error {
	return fmt.Errorf("%s names the column %q, but %s has only %s", flag, name, t.name(), strings.Join(names, ", "))
}

func (c columns) person(row []string, n int) (person, error) {
	p := person{ExternalID: fmt.Sprintf("row-%06d", n), Traits: map[string]any{}}
	for i, field := range row {
		field = strings.TrimSpace(field)
		switch {
		case i == c.id:
			if p.ExternalID = cmp.Or(field, missing); p.ExternalID == missing {
				return person{}, fmt.Errorf("the column %s, which is the identifier, has no value", c.names[i])
			}
		case c.ignored[i], field == "", field == missing:
		default:
			p.Traits[c.names[i]] = value(field)
		}
	}
	return p, nil
}

// value is a number where JSON could write it so, else text: 007 and 1e999 are
// text.
func value(field string) any {
	if !json.Valid([]byte(field)) {
		return field
	}
	number, err := strconv.ParseFloat(field, 64)
	if err != nil {
		return field
	}
	return number
}
