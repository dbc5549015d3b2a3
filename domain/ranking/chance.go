package ranking

import (
	"encoding/binary"
	"math"
)

// Seed makes a ranking repeatable.
type Seed [16]byte

// chance is the generator of Steele, Lea and Flood (2014), whose sequence no
// release of a library can change.
type chance uint64

func newChance(seed Seed) *chance {
	c := chance(binary.BigEndian.Uint64(seed[:8]))
	c = chance(c.next() ^ binary.BigEndian.Uint64(seed[8:]))
	return &c
}

func (c *chance) next() uint64 {
	*c += 0x9e3779b97f4a7c15
	z := uint64(*c)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// uniform is in 0..1, both excluded.
func (c *chance) uniform() float64 { return (float64(c.next()>>11) + 0.5) / (1 << 53) }

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
