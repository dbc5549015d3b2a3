package httpapi

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"kindred/domain/fault"
)

const mediaCSV = "text/csv"

// refusedRecord begins a line that stands for a record of CSV that cannot be read,
// followed by why. No line of JSON begins so.
const refusedRecord = '\x1a'

const (
	// maxRecord bounds what is held of a file of CSV.
	// limit: imports | a record of CSV, quoted line breaks included | {maxRecord B} | its first line is refused, `invalid_csv`
	maxRecord = 512 << 10 // bytes
	// MaxColumns bounds the columns of CSV.
	// limit: imports | columns of CSV | {MaxColumns} | 400 `invalid_csv`; of a download 409 `not_as_csv`
	MaxColumns = 1024
	// MaxColumnName bounds the name of a column of CSV, in bytes: each line repeats, in JSON, the
	// names of its columns.
	// limit: imports | name of a column of CSV | {MaxColumnName} bytes | 400 `invalid_csv`; of a download 409 `not_as_csv`
	MaxColumnName = 256
)

// ExternalIDColumn is the column of the client's own identifiers.
const ExternalIDColumn = "external_id"

// csvLines reads CSV (RFC 4180) as the lines of an import: each line that a record
// begins on is its user in JSON, the header and all other lines are blank, so that
// lines keep their numbers. A record that cannot be read is refused by its first
// line, and reading goes on with the next.
type csvLines struct {
	from    *bufio.Reader
	one     *bufio.Reader // of the record that is parsed: a buffer for each would cost more than a short line
	comma   rune          // between fields, as the header has it
	columns []string      // nil before the header was read
	buffer  []byte        // whole lines that were read ahead, from at on
	at      int
	out     bytes.Buffer
	n       int // lines that are told of in out so far
	err     error
}

func newCSVLines(from io.Reader) *csvLines {
	return &csvLines{from: bufio.NewReaderSize(from, 64<<10), one: bufio.NewReader(nil)}
}

// Read implements io.Reader. A header that cannot be used is a fault.
// Faults: invalid_csv.
func (c *csvLines) Read(p []byte) (int, error) {
	for c.out.Len() == 0 && c.err == nil {
		c.err = c.next()
	}
	if c.out.Len() > 0 {
		return c.out.Read(p)
	}
	return 0, c.err
}

func (c *csvLines) next() error {
	record, err := c.record()
	if err != nil {
		return err
	}
	if c.n == 0 && namesSeparator.Match(record) || c.columns != nil && len(bytes.TrimRight(record, "\r\n")) == 0 {
		c.done(record, nil)
		return nil
	}
	fields, err := c.parse(record)
	switch {
	case c.columns == nil && beginsWorkbook(record):
		return badCSV("The file is a workbook or an archive. Save the sheet as CSV UTF-8 in your spreadsheet, and send that file.")
	case c.columns == nil && beginsList.Match(record):
		return badCSV("The file begins a list of JSON. %s", insteadOfList)
	case c.columns == nil && (!utf8.Valid(record) || bytes.IndexByte(record, 0) >= 0): // UTF-16 has lone CRs, too
		return badCSV("The file is not text in UTF-8. Save it as CSV UTF-8.")
	case c.columns == nil && bytes.Count(record, []byte("\r")) > bytes.Count(record, []byte("\r\n")): // all of the file may be one line
		return badCSV("The lines of the file end with CR alone. Save it with LF or CRLF at the end of each.")
	case c.columns == nil && err != nil:
		return badCSV("The header of the file cannot be read: %s.", err)
	case c.columns == nil:
		if c.columns, err = header(fields); err != nil {
			return err
		}
		c.done(record, nil)
	case err != nil: // the lines behind the first may be records of their own
		first := bytes.IndexByte(record, '\n') + 1
		if first == 0 {
			first = len(record)
		}
		c.done(record[:first], fmt.Appendf([]byte{refusedRecord}, "%s", err))
	default:
		c.done(record, c.user(fields))
	}
	return nil
}

// namesSeparator is the line that spreadsheets put before a header for one another. The header tells the same.
var namesSeparator = regexp.MustCompile("^(\ufeff)?\"?sep=[^\r\n]?\"?\r?\n$")

// beginsList is a list of objects that is sent for CSV.
var beginsList = regexp.MustCompile(`^\x{feff}?[ \t]*\[\s*(\{|$)`)

// beginsWorkbook tells the archive that a workbook is, and the compound file that it was before 2007.
func beginsWorkbook(file []byte) bool {
	return bytes.HasPrefix(file, []byte("PK\x03\x04")) || bytes.HasPrefix(file, []byte("\xd0\xcf\x11\xe0"))
}

// done passes over lines, the first of which stands for line.
func (c *csvLines) done(lines, line []byte) {
	n := bytes.Count(lines, []byte("\n"))
	if !bytes.HasSuffix(lines, []byte("\n")) { // the last of the file
		n++
	}
	c.n += n
	c.out.Write(line)
	for range n {
		c.out.WriteByte('\n')
	}
	if c.at += len(lines); c.at >= maxRecord || c.at == len(c.buffer) { // not each time, or many short lines would cost their square
		c.buffer = c.buffer[:copy(c.buffer, c.buffer[c.at:])]
		c.at = 0
	}
}

func (c *csvLines) pending() []byte { return c.buffer[c.at:] }

// record is what is at the beginning of pending: lines up to one where all quotes
// are closed, or one line where none does within the bound.
func (c *csvLines) record() ([]byte, error) {
	end, quotes := 0, 0
	for {
		from := end
		if at := bytes.IndexByte(c.pending()[end:], '\n'); at >= 0 {
			end += at + 1
		} else if read, err := c.fill(); err != nil {
			return nil, err
		} else if read {
			continue
		} else {
			end = len(c.pending())
		}
		quotes += bytes.Count(c.pending()[from:end], []byte(`"`))
		switch {
		case end == 0 && c.columns == nil:
			return nil, badCSV("The file has no header.")
		case end == 0:
			return nil, io.EOF
		case quotes%2 == 0:
			return c.pending()[:end], nil
		case from == end || end >= maxRecord: // open until the end, or for too long: the first line alone
			first := bytes.IndexByte(c.pending()[:end], '\n') + 1
			if first == 0 {
				first = end
			}
			return c.pending()[:first], nil
		}
	}
}

// fill reads more, and cuts a line that is longer than any may be.
func (c *csvLines) fill() (bool, error) {
	line, err := c.from.ReadSlice('\n')
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
		return false, err
	}
	if at := len(c.buffer) - 1 - bytes.LastIndexByte(c.buffer, '\n'); at+len(line) > maxRecord {
		line = line[:max(0, maxRecord-at)]
		if err == nil {
			line = append(bytes.Clone(line), '\n')
		}
		c.buffer = append(c.buffer, line...)
		return true, nil
	}
	c.buffer = append(c.buffer, line...)
	return len(line) > 0, nil
}

// parse reads a record, and says in which line and column it is broken.
func (c *csvLines) parse(record []byte) ([]string, error) {
	if len(record) >= maxRecord {
		return nil, fmt.Errorf("line %d has more than %d bytes", c.n+1, maxRecord)
	}
	if !utf8.Valid(record) {
		return nil, fmt.Errorf("line %d is not UTF-8: save the file as CSV UTF-8", c.n+1)
	}
	if c.columns == nil {
		record = bytes.TrimPrefix(record, []byte("\ufeff"))
		c.comma = separator(record)
	}
	c.one.Reset(bytes.NewReader(record))
	fields, err := split(c.one, c.comma)
	var broken *csv.ParseError
	switch {
	case errors.As(err, &broken):
		return nil, fmt.Errorf("line %d, column %d: %w", c.n+broken.Line, broken.Column, broken.Err)
	case errors.Is(err, io.EOF):
		return nil, errors.New("the line is blank")
	case err != nil:
		return nil, err
	case c.columns != nil && len(fields) != len(c.columns):
		return nil, fmt.Errorf("line %d has %d columns, and the header %d", c.n+1, len(fields), len(c.columns))
	}
	for i, name := range c.columns {
		if name == "" && fields[i] != "" {
			return nil, fmt.Errorf("line %d has a value in column %d, of which the header has no name", c.n+1, i+1)
		}
	}
	return fields, nil
}

func badCSV(format string, arguments ...any) error {
	return fault.New(fault.Unreadable, "invalid_csv", format, arguments...)
}

// split reads one record.
func split(record io.Reader, comma rune) ([]string, error) {
	in := csv.NewReader(record)
	in.Comma = comma
	in.TrimLeadingSpace = comma != '\t' // which is a space itself, so that empty fields would go
	in.FieldsPerRecord = -1
	return in.Read()
}

// separator is what stands between the names of a header: a spreadsheet writes ; where the comma
// stands before decimals. Names may hold others ("sales; net"), so it is the first that sets
// external_id apart; where none does, the first that is there, to say what is wrong.
func separator(header []byte) rune {
	first := ','
	for _, comma := range "\t;," {
		if bytes.ContainsRune(header, comma) {
			first = comma
		}
	}
	for _, comma := range ",;\t" {
		if names, err := split(bytes.NewReader(header), comma); err == nil && slices.Contains(names, ExternalIDColumn) {
			return comma
		}
	}
	return first
}

// header checks the names of columns.
func header(names []string) ([]string, error) {
	if len(names) > MaxColumns {
		return nil, badCSV("The header has %d columns, and may have %d.", len(names), MaxColumns)
	}
	if !slices.Contains(names, ExternalIDColumn) {
		const told = 20
		hint := ""
		if i := slices.IndexFunc(names, spelledAlike); i >= 0 {
			hint = fmt.Sprintf(" Rename %q.", names[i])
		} else if len(names) == 1 {
			hint = " Fields stand between commas, semicolons or tabs."
		}
		return nil, badCSV("The header has no column that is spelled %s. It has %d: %.40q.%s", ExternalIDColumn, len(names), names[:min(len(names), told)], hint)
	}
	named := len(names)
	for names[named-1] == "" {
		named-- // as a spreadsheet writes columns of which it holds formats alone
	}
	seen := map[string]int{}
	for i, name := range names[:named] {
		if name == "" {
			return nil, badCSV("The column %d of the header has no name. Give it one, or take it out if it numbers the rows.", i+1)
		}
		if len(name) > MaxColumnName {
			return nil, badCSV("The name of the column %d of the header has %d bytes, and may have %d.", i+1, len(name), MaxColumnName)
		}
		if at, twice := seen[name]; twice {
			return nil, badCSV("The columns %d and %d of the header have one name, %q.", at+1, i+1, name)
		}
		seen[name] = i
	}
	return names, nil
}

// spelledAlike tells a name that was meant to be external_id.
func spelledAlike(name string) bool {
	return strings.EqualFold(strings.NewReplacer("_", "", "-", "", ".", "", " ", "", "\u00a0", "").Replace(name), strings.ReplaceAll(ExternalIDColumn, "_", ""))
}

// user is a record as a line of JSON. Keys are in the order of the columns.
func (c *csvLines) user(fields []string) []byte {
	id := fields[slices.Index(c.columns, ExternalIDColumn)]
	line := append([]byte(`{"external_id":`), quoted(id)...)
	line = append(line, `,"traits":{`...)
	some := false
	for i, name := range c.columns {
		if name == ExternalIDColumn || fields[i] == "" {
			continue
		}
		if some {
			line = append(line, ',')
		}
		some = true
		line = append(append(append(line, quoted(name)...), ':'), valueOf(fields[i])...)
	}
	return append(line, "}}"...)
}

func quoted(text string) []byte {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(text) // text always can be
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

// number is one of JSON that is not read as another: beyond 15 digits some are.
var number = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,2})?$`)

const exactDigits = 15

// valueOf is a field as JSON: true, false, null, a number, a list or an object
// where it is written so, else a text.
func valueOf(field string) []byte {
	switch {
	case field == "true" || field == "false" || field == "null":
		return []byte(field)
	case number.MatchString(field) && (digits(field) <= exactDigits || printed(field)):
		return []byte(field)
	case (field[0] == '[' || field[0] == '{') && json.Valid([]byte(field)) && !strings.ContainsAny(field, "\r\n"):
		return []byte(field)
	}
	return quoted(field)
}

// printed tells 0.30000000000000004, as programs write a decimal that is read as the same, from what has
// digits that no double has. A whole number of as many digits is an identifier mostly, and stays a text with others of its kind.
func printed(field string) bool {
	x, err := strconv.ParseFloat(field, 64)
	return err == nil && strings.Contains(field, ".") && (strconv.FormatFloat(x, 'f', -1, 64) == field || strconv.FormatFloat(x, 'e', -1, 64) == field)
}

// CSVField is a JSON value as a field that valueOf reads as the same, but for texts that look
// like something else, empty ones, and numbers of more digits than are exact.
func CSVField(value json.RawMessage) (string, error) {
	if bytes.HasPrefix(value, []byte(`"`)) {
		var text string
		err := json.Unmarshal(value, &text)
		return text, err
	}
	var compact bytes.Buffer
	err := json.Compact(&compact, value)
	return compact.String(), err
}

func digits(number string) int {
	n := 0
	for _, c := range number {
		if c == 'e' || c == 'E' {
			break
		}
		if c >= '0' && c <= '9' {
			n++
		}
	}
	return n
}
