package postgres

import (
	"context"
	"errors"
	"io"

	"github.com/jackc/pgx/v5"
)

// CopyRows puts the rows of a table of one database that where selects (all, where it
// is empty) in place of those that the other has. COPY takes no arguments: whoever calls vouches for the text.
func CopyRows(ctx context.Context, source, to pgx.Tx, table, columns, where string) error {
	if _, err := to.Exec(ctx, `DELETE FROM public.`+table); err != nil {
		return err
	}
	reader, writer := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		_, err := source.Conn().PgConn().CopyTo(ctx, writer, `COPY (SELECT `+columns+` FROM public.`+table+where+`) TO STDOUT BINARY`)
		sent <- errors.Join(err, writer.CloseWithError(err))
	}()
	_, err := to.Conn().PgConn().CopyFrom(ctx, reader, `COPY public.`+table+` (`+columns+`) FROM STDIN BINARY`)
	return errors.Join(err, reader.Close(), <-sent)
}
