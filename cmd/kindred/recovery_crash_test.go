package main

import (
	"math/rand/v2"
	"testing"
	"time"

	"kindred/postgres/pgtest"
)

// impatient makes failed deliveries be tried again soon, and those that died
// with their process as soon as a lease allows.
func impatient(c *Config) {
	c.RetryDelays = []time.Duration{
		50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond,
	}
	c.WebhookTimeout = time.Second
}

func TestAServiceThatIsKilledLosesNothing(t *testing.T) {
	t.Parallel()
	p := startProcess(t, impatient, func(c *Config) { c.DatabaseURL = pgtest.URL(t) })
	f := openFoundation(t, p.Config)
	storm := newStorm(t, p.service, 4)
	storm.blow()
	for _, whileStarting := range []bool{false, true, false, false, true, false} {
		if !whileStarting {
			storm.acknowledged(20 + rand.IntN(80))
		}
		p.kill()
		callersGone(t, f)
		p.start()
		if whileStarting {
			<-time.After(time.Duration(rand.IntN(400)) * time.Millisecond) // how far it has come is the point
		} else {
			p.serving()
		}
	}
	p.serving()
	storm.acknowledged(20)
	storm.calm()
	storm.audit(f, p.service)
	caughtUp(t, f)
	p.stop()
	checkRebuilt(t, f)
}
