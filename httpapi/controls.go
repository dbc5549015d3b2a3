package httpapi

import (
	"crypto/ed25519"
	"encoding/base64"
)

// Controls is what an owner chose about deliveries to an endpoint. Zero is not chosen.
type Controls struct {
	RespectRetryAfter bool
	DisableAfter      int // seconds
	MaxPerSecond      int // attempts
	Ordered           bool
	Ed25519           bool
	Filter            string
}

// PublicKey is a key as Standard Webhooks writes it.
func PublicKey(key ed25519.PublicKey) string { return "whpk_" + base64.StdEncoding.EncodeToString(key) }

// Control shows what an owner chose about deliveries. What was not chosen is left out.
func (w *Webhook) Control(headerNames []string, c Controls, disabled bool) {
	w.HeaderNames, w.RespectRetryAfter, w.DisableAfterSeconds = headerNames, OrNull(c.RespectRetryAfter), OrNull(c.DisableAfter)
	w.MaxPerSecond, w.Ordered, w.Ed25519 = OrNull(c.MaxPerSecond), OrNull(c.Ordered), OrNull(c.Ed25519)
	w.Filter = OrNull(c.Filter)
	if disabled {
		w.PausedBecause = new(PausedBecauseFailing)
	}
}
