package ranking

import (
	"encoding/binary"
	"math"

	"kindred/domain/splitmix"
)

// Seed makes a ranking repeatable.
type Seed [16]byte

// chance draws what a ranking leaves to chance.
type chance struct{ splitmix.Source }

func newChance(seed Seed) *chance {
	first := splitmix.Source(binary.BigEndian.Uint64(seed[:8]))
	return &chance{splitmix.Source(first.Uint64() ^ binary.BigEndian.Uint64(seed[8:]))}
}

// uniform is in 0..1, both excluded.
func (c *chance) uniform() float64 { return (float64(c.Uint64()>>11) + 0.5) / (1 << 53) }

// below is a number in 0..n-1.
func (c *chance) below(n int) int { return int(c.uniform() * float64(n)) }

// normal is a standard normal deviate (Box and Muller, 1958).
func (c *chance) normal() float64 {
	return math.Sqrt(-2*math.Log(c.uniform())) * math.Cos(2*math.Pi*c.uniform())
}

// gamma is a Gamma(shape, 1) deviate for a shape of at least 1 (Marsaglia and
// Tsang, 2000). Fewer than one in twenty tries fails, so it ends; a try that
// fails a hundred times settles for the mean.
func (c *chance) gamma(shape float64) float64 {
	d := shape - 1.0/3
	scale := 1 / math.Sqrt(9*d)
	for range 100 {
		x := c.normal()
		v := 1 + scale*x
		if v <= 0 {
			continue
		}
		v = v * v * v
		if math.Log(c.uniform()) < x*x/2+d-d*v+d*math.Log(v) {
			return d * v
		}
	}
	return shape
}

// clickRate draws a click rate from what is known of it.
func (c *chance) clickRate(r Response) float64 {
	clicks, misses := r.posterior()
	a, b := c.gamma(clicks), c.gamma(misses)
	return a / (a + b)
}
