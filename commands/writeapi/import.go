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
	if r.Params.Async != nil && *r.Params.Async {
		accepted, err := a.Imports.Accept(ctx, call(ctx), string(mode), r.Body, maxLine)
		if err != nil {
			return nil, err
		}
		return httpapi.ImportUsers202JSONResponse{
			Body: accepted, Headers: httpapi.ImportUsers202ResponseHeaders{Location: "/api/v1/users/imports/" + string(accepted.ID)},
		}, nil
	}
	report, err := a.ApplyLines(ctx, call(ctx), string(mode), r.Body)
	if err != nil {
		return nil, err
	}
	answer := httpapi.ImportUsers200JSONResponse{Body: httpapi.ImportResult{
		Created: int64(report.Created), Updated: int64(report.Updated + report.Unchanged), Failed: int64(report.Failed),
		Errors: LineErrors(report.Errors),
	}}
	if report.Position != "" {
		at := string(report.Position)
		answer.Headers.XKindredPosition = &at
	}
	return answer, nil
}

// LineErrors puts the lines that were refused into the words of the contract.
func LineErrors(refused []commands.LineError) []httpapi.ImportError {
	out := make([]httpapi.ImportError, len(refused))
	for i, e := range refused {
		out[i] = httpapi.ImportError{Line: int64(e.Line), Code: e.Fault.Code, Detail: e.Fault.Detail}
		for _, f := range e.Fault.Fields {
			out[i].Errors = append(out[i].Errors, httpapi.FieldError{Pointer: f.Pointer, Detail: f.Detail})
		}
	}
	return out
}

// Imports takes in what is applied behind the request.
type Imports interface {
	// Accept returns once the lines of body, at most maxLine bytes of each, are
	// durable.
	Accept(ctx context.Context, call commands.Call, mode string, body io.Reader, maxLine int) (httpapi.Import, error)
}

// ApplyLines upserts the users of body, one JSON object a line.
func (a *API) ApplyLines(ctx context.Context, call commands.Call, mode string, body io.Reader) (commands.ImportReport, error) {
	lines := &lines{from: bufio.NewReaderSize(body, maxLine), rules: a.Lines}
	return a.Commands.ImportUsers(ctx, call, mode, lines.next)
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
