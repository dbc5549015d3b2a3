package audit

import (
	"encoding/hex"
	"strconv"
	"time"

	"kindred/domain/id"
	"kindred/eventstore"
)

// appendEvent appends the line of an event as encoding/json writes it, unless
// it is one that had better be left to that.
func appendEvent(line []byte, e *Event) (_ []byte, ok bool) {
	if e.Ordinal == nil || e.Version == 0 || e.RecordedAt.IsZero() || e.Personal != nil || e.Erased != nil || e.Missing {
		return line, false
	}
	line = strconv.AppendInt(append(line, `{"ordinal":`...), *e.Ordinal, 10)
	ok = true
	text := func(name, value string) {
		line = append(append(append(line, `,"`...), name...), `":"`...)
		for i := range len(value) {
			switch c := value[i]; {
			case c < ' ' || c > '~':
				ok = false
			case c == '"' || c == '\\':
				line = append(line, '\\', c)
			default:
				line = append(line, c)
			}
		}
		line = append(line, '"')
	}
	filled := func(name, value string) {
		if value != "" {
			text(name, value)
		}
	}
	text("position", string(e.Position))
	filled("id", string(e.ID))
	filled("type", e.Type)
	line = strconv.AppendInt(append(line, `,"version":`...), int64(e.Version), 10)
	filled("stream", string(e.Stream))
	line = strconv.AppendInt(append(line, `,"revision":`...), int64(e.Revision), 10)
	line = append(e.RecordedAt.AppendFormat(append(line, `,"recorded_at":"`...), time.RFC3339Nano), '"')
	filled("actor", e.Actor)
	filled("causation_id", string(e.Causation))
	filled("correlation_id", e.Correlation)
	text("data", e.Data)
	text("meta", e.Meta)
	line = hex.AppendEncode(append(line, `,"hash":"`...), e.Hash[:])
	return append(line, "\"}\n"...), ok
}

// Shown reads what the line of an event shows of its envelope: nothing where
// that cannot be read.
func Shown(meta []byte) (actor, correlation string, causation id.Event) {
	if actor, correlation, causation, ok := quickShown(meta); ok {
		return actor, correlation, causation
	}
	m, err := eventstore.DecodeMeta(meta)
	if err != nil {
		return "", "", ""
	}
	return m.Actor, m.Correlation, m.Causation
}

// quickShown reads an object of plain texts and integers, whose names are in
// lower case and come once.
func quickShown(meta []byte) (actor, correlation string, causation id.Event, ok bool) {
	if len(meta) < 2 || meta[0] != '{' || meta[len(meta)-1] != '}' {
		return "", "", "", false
	}
	var seen uint16
	for rest := meta[1 : len(meta)-1]; ; rest = rest[1:] {
		var key, value string
		if key, rest, ok = scanString(rest); !ok || len(rest) < 2 || rest[0] != ':' {
			return "", "", "", false
		}
		isText := rest[1] == '"'
		if isText {
			value, rest, ok = scanString(rest[1:])
		} else {
			value, rest, ok = scanInteger(rest[1:])
		}
		bit := uint16(0)
		switch key {
		case "client":
			bit = 1
		case "version":
			bit = 2
		case "recorded_at":
			_, err := time.Parse(time.RFC3339, value)
			ok, bit = ok && err == nil, 4
		case "actor":
			actor, bit = value, 8
		case "correlation":
			correlation, bit = value, 16
		case "causation":
			causation, bit = id.Event(value), 32
		case "request":
			bit = 64
		case "previous":
			bit = 128
		case "trace":
			bit = 256
		}
		if !ok || bit == 0 || seen&bit != 0 || isText == (bit == 2) {
			return "", "", "", false
		}
		seen |= bit
		if len(rest) == 0 {
			return actor, correlation, causation, true
		}
		if rest[0] != ',' {
			return "", "", "", false
		}
	}
}
