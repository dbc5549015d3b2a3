package readmodel

import (
	"github.com/jackc/pgx/v5"

	"kindred/domain/event"
)

// Clocks is a table of how far the clocks of sandboxes are ahead of the machine's. A read
// model that finds what is due by them has one of its own, since none reads another's tables.
type Clocks string

func (c Clocks) Table() string {
	return `
CREATE TABLE ` + string(c) + ` (
	client text COLLATE "C" NOT NULL PRIMARY KEY, -- the sandbox
	ahead  interval NOT NULL
);`
}

// Move queues that a clock was moved.
func (c Clocks) Move(b *pgx.Batch, e event.ClockMoved) {
	b.Queue(`INSERT INTO `+string(c)+` (client, ahead) VALUES ($1, $2) ON CONFLICT (client) DO UPDATE SET ahead = excluded.ahead`,
		string(e.Client), e.Ahead())
}
