package clustering

import "math"

// chiSquared is the value below which a chi-squared variable of so many
// degrees of freedom lies with probability p, 0 < p < 1.
func chiSquared(degrees int, p float64) float64 {
	a := float64(degrees) / 2
	low, high := 0.0, 1.0
	for lowerGamma(a, high/2) < p && high < 1e6 {
		low, high = high, 2*high
	}
	for range 60 {
		middle := (low + high) / 2
		if lowerGamma(a, middle/2) < p {
			low = middle
		} else {
			high = middle
		}
	}
	return (low + high) / 2
}

// lowerGamma is the regularised lower incomplete gamma function P(a, x), by its
// series or its continued fraction (DLMF 8.7.1 and 8.9.2), whichever converges
// faster.
func lowerGamma(a, x float64) float64 {
	if x <= 0 {
		return 0
	}
	logGamma, _ := math.Lgamma(a)
	front := math.Exp(float64(a*math.Log(x)) - x - logGamma)
	if x < a+1 {
		term := 1 / a
		sum := term
		for n := 1; n < 1000 && term > sum*1e-16; n++ {
			term = float64(term * (x / (a + float64(n))))
			sum += term
		}
		return front * sum
	}
	// The modified method of Lentz.
	const tiny = 1e-300
	b := x + 1 - a
	c, d := 1/tiny, 1/b
	fraction := d
	for n := 1; n < 1000; n++ {
		an := -float64(n) * (float64(n) - a)
		b += 2
		d = 1 / notZero(float64(an*d)+b, tiny)
		c = notZero(b+an/c, tiny)
		fraction *= c * d
		if math.Abs(float64(c*d)-1) < 1e-16 {
			break
		}
	}
	return 1 - float64(front*fraction)
}

func notZero(x, tiny float64) float64 {
	if math.Abs(x) < tiny {
		return tiny
	}
	return x
}
