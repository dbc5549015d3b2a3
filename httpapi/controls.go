package httpapi

// Controls is what an owner chose about deliveries to an endpoint. Zero is not chosen.
type Controls struct {
	RespectRetryAfter bool
	DisableAfter      int // seconds
	MaxPerSecond      int // attempts
	Ordered           bool
}

// Control shows what an owner chose about deliveries. What was not chosen is left out.
func (w *Webhook) Control(headerNames []string, c Controls, disabled bool) {
	w.HeaderNames, w.RespectRetryAfter, w.DisableAfterSeconds = headerNames, OrNull(c.RespectRetryAfter), OrNull(c.DisableAfter)
	w.MaxPerSecond, w.Ordered = OrNull(c.MaxPerSecond), OrNull(c.Ordered)
	if disabled {
		w.PausedBecause = new(PausedBecauseFailing)
	}
}
