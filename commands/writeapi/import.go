package writeapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"

	"kindred/commands"
	"kindred/domain"
	"kindred/domain/fault"
	"kindred/httpapi"
	"kindred/panics"
)

// maxLine bounds a line of an import, in bytes: an external id, the largest
// traits, and room.
// limit: imports | a line | {maxLine B} | the line is refused, `line_too_long`
const maxLine = domain.MaxTraits + 8<<10

// ImportUsers upserts users, one JSON object a line, as they stream in.
func (a *API) ImportUsers(ctx context.Context, r httpapi.ImportUsersRequestObject) (httpapi.ImportUsersResponseObject, error) {
	mode := string(httpapi.Or(r.Params.Mode, httpapi.ImportMerge))
	if httpapi.Or(r.Params.Async, false) {
		accepted, err := a.Imports.Accept(ctx, call(ctx), mode, r.Body, maxLine)
		if err != nil {
			return nil, err
		}
		return httpapi.ImportUsers202JSONResponse{
			Body: accepted, Headers: httpapi.ImportUsers202ResponseHeaders{Location: "/api/v1/users/imports/" + string(accepted.ID)},
		}, nil
	}
	report, err := a.ApplyLines(ctx, call(ctx), mode, r.Body)
	if err != nil {
		return nil, err
	}
	return httpapi.ImportUsers200JSONResponse{
		Body: httpapi.ImportResult{
			Created: int64(report.Created), Updated: int64(report.Updated + report.Unchanged), Failed: int64(report.Failed),
			Errors: LineErrors(report.Errors),
		},
		Headers: httpapi.ImportUsers200ResponseHeaders{XKindredPosition: positionIfAny(report.Position)},
	}, nil
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

const (
	// limit: imports | lines of a preview that are looked at | {previewedLines} | `whole` is false
	previewedLines = 10_000
	// limit: imports | bytes of traits of a preview that are looked at | {previewedBytes B} | `whole` is false
	previewedBytes = 8 << 20
)

// PreviewImport says what an import would be made of, from the beginning of its body.
// Who stands in several lines counts as the last of them says.
func (a *API) PreviewImport(ctx context.Context, r httpapi.PreviewImportRequestObject) (httpapi.PreviewImportResponseObject, error) {
	body := httpapi.PreviewImport200JSONResponse{Errors: []httpapi.ImportError{}, Whole: true}
	var refused []commands.LineError
	users := map[string]json.RawMessage{}
	lines := newLines(r.Body, a.Lines)
	for size := 0; ; {
		some, err := lines.next()
		if err != nil {
			return nil, err
		}
		if len(some) == 0 {
			break
		}
		if body.Lines >= previewedLines || size >= previewedBytes {
			body.Whole = false
			break
		}
		body.Lines += int64(len(some))
		for _, line := range some {
			size += len(line.Traits)
			if line.Refused == nil {
				line.Refused = fault.As(domain.CheckTraits(line.Traits))
			}
			if line.Refused == nil {
				users[line.ExternalID] = line.Traits
			} else if body.Failed++; len(refused) < commands.MaxLineErrors {
				refused = append(refused, commands.LineError{Line: line.Line, Fault: line.Refused})
			}
		}
	}
	body.Errors, body.Users = LineErrors(refused), int64(len(users))
	err := fault.Await(ctx, func(ctx context.Context) error { // the edge cannot read the body anew
		found, skipped, err := a.InferredTraits(ctx, call(ctx).Client, users)
		body.Traits, body.Skipped = found, int64(skipped)
		return err
	})
	return body, err
}

// Imports takes in what is applied behind the request.
type Imports interface {
	// Accept returns once the lines of body, at most maxLine bytes of each, are
	// durable.
	Accept(ctx context.Context, call commands.Call, mode string, body io.Reader, maxLine int) (httpapi.Import, error)
}

// ApplyLines upserts the users of body, one JSON object a line.
// Faults: busy, catching_up, erased_since, idempotency_key_reused, invalid, invalid_csv, invalid_json,
// json_too_deep, line_too_long, overloaded, quarantined, stale, too_many_values, traits_too_large,
// user_exists, user_unknown.
func (a *API) ApplyLines(ctx context.Context, call commands.Call, mode string, body io.Reader) (commands.ImportReport, error) {
	return a.Commands.ImportUsers(ctx, call, mode, newLines(body, a.Lines).next)
}

// Bounds of what is parsed at once.
const (
	parsedLines = 256
	parsedBytes = 1 << 20
)

// lines reads an import. It parses what has arrived together, on all processors.
type lines struct {
	from  *bufio.Reader
	rules httpapi.UserLines
	n     int
	err   error // after what was read; io.EOF at the end
}

// newLines reads an import whose lines have at most maxLine bytes, and their line break.
func newLines(body io.Reader, rules httpapi.UserLines) *lines {
	return &lines{from: bufio.NewReaderSize(body, maxLine+1), rules: rules}
}

// next reads some lines that are not blank, none at the end. Those before an
// error come first.
func (l *lines) next() ([]commands.Imported, error) {
	var (
		texts  [][]byte
		parsed []commands.Imported
		size   int
	)
	for l.err == nil && (len(texts) == 0 || len(texts) < parsedLines && size < parsedBytes && l.atHand()) {
		var line commands.Imported
		var text []byte
		if line, text, l.err = l.read(); l.err == nil {
			texts, parsed = append(texts, text), append(parsed, line)
			size += len(text)
		}
	}
	if err := l.parseAll(parsed, texts); err != nil {
		return nil, err
	}
	if len(parsed) == 0 && !errors.Is(l.err, io.EOF) {
		return nil, l.err
	}
	return parsed, nil
}

// parseAll parses lines that were not refused.
func (l *lines) parseAll(parsed []commands.Imported, texts [][]byte) error {
	share := (len(texts) + runtime.GOMAXPROCS(0) - 1) / runtime.GOMAXPROCS(0)
	all := panics.New()
	for first := 0; first < len(texts); first += share {
		all.Go(func() error {
			for i := first; i < min(first+share, len(texts)); i++ {
				if parsed[i].Refused != nil {
					continue
				}
				if err := l.parse(&parsed[i], texts[i]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return all.Wait()
}

// atHand says whether the next line has arrived.
func (l *lines) atHand() bool {
	arrived, err := l.from.Peek(l.from.Buffered())
	return err == nil && bytes.IndexByte(arrived, '\n') >= 0
}

// read returns a copy of the next line that is not blank, or a refusal.
func (l *lines) read() (commands.Imported, []byte, error) {
	for {
		line, err := l.from.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			l.n++
			if err := commands.SkipLine(l.from); err != nil {
				return commands.Imported{}, nil, fmt.Errorf("read the import after line %d: %w", l.n, err)
			}
			return commands.Imported{
				Line:    l.n,
				Refused: fault.New(fault.TooLarge, "line_too_long", "The line has more than %d bytes.", maxLine),
			}, nil, nil
		case err != nil && !errors.Is(err, io.EOF):
			return commands.Imported{}, nil, fmt.Errorf("read the import after line %d: %w", l.n, err)
		case len(line) == 0:
			return commands.Imported{}, nil, io.EOF
		}
		if l.n++; l.n == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			return commands.Imported{Line: l.n}, bytes.Clone(line), nil
		}
	}
}

// parse reads a line by the rules for a single user.
func (l *lines) parse(into *commands.Imported, text []byte) error {
	user, err := l.rules.Decode(text)
	into.Refused = fault.As(err)
	switch {
	case err == nil:
		into.ExternalID, into.Traits = user.ExternalID, orEmpty(user.Traits)
	case into.Refused == nil:
		return fmt.Errorf("read line %d of the import: %w", into.Line, err)
	}
	return nil
}
