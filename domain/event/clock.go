package event

import "time"

// MaxDrift is how far apart the clocks of processes may be. A time that lies
// further ahead was told by a clock that was wrong: when that was really, nobody
// knows, but it was before now.
// limit: log | an event's time ahead of the machine's | {MaxDrift}
const MaxDrift = time.Minute

// Ahead says whether a time was told by a clock that was wrong.
func Ahead(at, now time.Time) bool { return at.After(now.Add(MaxDrift)) }

// Recent says whether a time lies in the window that ends now. One that is Ahead
// lies in none: else it would until that time has come.
func Recent(window time.Duration, at, now time.Time) bool {
	return now.Sub(at) < window && !Ahead(at, now)
}
