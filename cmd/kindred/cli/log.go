package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"kindred/app"
)

const (
	logDelay = 100 * time.Millisecond // of a line that is no error
	// limit: tools | lines of the log that wait to be written together | {logAtOnce B}
	logAtOnce = 32 << 10 // bytes of such lines
)

// logLines gathers lines of the log, so that not each costs a system call.
// What is written is whole lines; it reaches the output at once where it is
// urgent, and soon otherwise. Flush it at the end.
type logLines struct {
	out io.Writer

	mu      sync.Mutex
	waiting []byte
	soon    *time.Timer
}

// newLogger writes to out, and lets no error wait in it. What cannot be read of
// the format and level counts as their defaults: app.ReadConfig refuses it.
func newLogger(out io.Writer, getenv func(string) string) *slog.Logger {
	level, _ := app.LogLevel(getenv(app.LogLevelSetting))
	options := &slog.HandlerOptions{Level: level}
	var handler slog.Handler = slog.NewTextHandler(out, options)
	if getenv(app.LogFormatSetting) == "json" {
		handler = slog.NewJSONHandler(out, options)
	}
	if lines, ok := out.(*logLines); ok {
		handler = logHandler{handler, lines}
	}
	return slog.New(handler)
}

// Write takes a line.
func (l *logLines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		if l.soon == nil {
			l.soon = time.AfterFunc(logDelay, func() { _ = l.flush() }) // there is nowhere to tell of it
		} else {
			l.soon.Reset(logDelay)
		}
	}
	l.waiting = append(l.waiting, line...)
	if len(l.waiting) < logAtOnce {
		return len(line), nil
	}
	return len(line), l.drain()
}

func (l *logLines) flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.drain()
}

func (l *logLines) drain() error {
	if len(l.waiting) == 0 {
		return nil
	}
	_, err := l.out.Write(l.waiting)
	l.waiting = l.waiting[:0]
	return err
}

// logHandler does not let an error wait.
type logHandler struct {
	slog.Handler
	lines *logLines
}

func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	err := h.Handler.Handle(ctx, r)
	if r.Level >= slog.LevelError {
		err = errors.Join(err, h.lines.flush())
	}
	return err
}

func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logHandler{h.Handler.WithAttrs(attrs), h.lines}
}

func (h logHandler) WithGroup(name string) slog.Handler {
	return logHandler{h.Handler.WithGroup(name), h.lines}
}

// libraryLog takes what libraries tell Go's own logger. It leaves out what they
// quote: net/http does so with what a webhook's receiver sends unasked, and that
// may repeat how a client names its users.
type libraryLog struct{ logger *slog.Logger }

func (l libraryLog) Write(line []byte) (int, error) {
	words, _, _ := bytes.Cut(line, []byte(`"`))
	l.logger.Warn("a library reports", "text", string(bytes.TrimSpace(words)))
	return len(line), nil
}
