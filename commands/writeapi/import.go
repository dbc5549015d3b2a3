package writeapi

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"kindred/commands"
	"kindred/domain"
	"kindred/domain/fault"
	"kindred/httpapi"
)

// maxLine bounds a line of an import, in bytes: an external id, the largest
// traits, and room.
const maxLine = domain.MaxTraits + 8<<10

// ImportUsers upserts users, one JSON object a line, as they stream in.
func (a *API) ImportUsers(ctx context.Context, r httpapi.ImportUsersRequestObject) (httpapi.ImportUsersResponseObject, error) {
	mode := httpapi.ImportMerge
	if r.Params.Mode != nil {
		mode = *r.Params.Mode
	}
	lines := &lines{from: bufio.NewReaderSize(r.Body, maxLine), rules: a.Lines}
	report, err := a.Commands.ImportUsers(ctx, call(ctx), string(mode), lines.next)
	if err != nil {
		return nil, err
	}
	answer := httpapi.ImportUsers200JSONResponse{Body: httpapi.ImportResult{
		Created: int64(report.Created), Updated: int64(report.Updated + report.Unchanged), Failed: int64(report.Failed),
		Errors: make([]httpapi.ImportError, len(report.Errors)),
	}}
	for i, e := range report.Errors {
		answer.Body.Errors[i] = httpapi.ImportError{Line: int64(e.Line), Code: e.Fault.Code, Detail: e.Fault.Detail}
		for _, f := range e.Fault.Fields {
			answer.Body.Errors[i].Errors = append(answer.Body.Errors[i].Errors, httpapi.FieldError{Pointer: f.Pointer, Detail: f.Detail})
		}
	}
	if report.Position != "" {
		at := string(report.Position)
		answer.Headers.XKindredPosition = &at
	}
	return answer, nil
}

// lines reads an import line by line.
type lines struct {
	from  *bufio.Reader
	rules httpapi.UserLines
	n     int
}

// next reads the next line that is not blank.
func (l *lines) next() (commands.Imported, bool, error) {
	for {
		line, err := l.from.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			l.n++
			if err := l.skip(); err != nil {
				return commands.Imported{}, false, err
			}
			return l.refused(fault.New(fault.TooLarge, "line_too_long", "The line has more than %d bytes.", maxLine)), true, nil
		case err != nil && !errors.Is(err, io.EOF):
			return commands.Imported{}, false, fmt.Errorf("read the import after line %d: %w", l.n, err)
		case len(line) == 0:
			return commands.Imported{}, false, nil
		}
		l.n++
		if line = bytes.TrimSpace(line); len(line) > 0 {
			parsed, err := l.parse(line)
			return parsed, err == nil, err
		}
	}
}

// skip passes over the rest of a line that is too long.
func (l *lines) skip() error {
	for {
		_, err := l.from.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err == nil, errors.Is(err, io.EOF):
			return nil
		}
		return fmt.Errorf("read the import after line %d: %w", l.n, err)
	}
}

func (l *lines) refused(f *fault.Fault) commands.Imported {
	return commands.Imported{Line: l.n, Refused: f}
}

// parse reads a line by the rules for a single user. What it keeps of the line
// is a copy: the buffer is used again.
func (l *lines) parse(line []byte) (commands.Imported, error) {
	user, err := l.rules.Decode(line)
	if refusal := fault.As(err); refusal != nil {
		return l.refused(refusal), nil
	}
	if err != nil {
		return commands.Imported{}, fmt.Errorf("read line %d of the import: %w", l.n, err)
	}
	return commands.Imported{Line: l.n, ExternalID: user.ExternalID, Traits: orEmpty(user.Traits)}, nil
}
