package httpapi

// Control shows what an owner chose about deliveries; disableAfter is in seconds. What
// was not chosen is left out.
func (w *Webhook) Control(headerNames []string, respectRetryAfter bool, disableAfter int, disabled bool) {
	w.HeaderNames, w.RespectRetryAfter, w.DisableAfterSeconds = headerNames, OrNull(respectRetryAfter), OrNull(disableAfter)
	if disabled {
		w.PausedBecause = new(PausedBecauseFailing)
	}
}
