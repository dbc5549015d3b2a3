package kindred

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

// Object is free-form JSON, such as traits. A number in it is a float64 where that
// is written as the same number again, else a json.Number: what was read is put
// back unchanged.
type Object map[string]any

// UnmarshalJSON reads an object or null.
func (o *Object) UnmarshalJSON(text []byte) error {
	in := json.NewDecoder(bytes.NewReader(text))
	in.UseNumber()
	var read map[string]any
	if err := in.Decode(&read); err != nil {
		return err
	}
	held(read)
	*o = read
	return nil
}

// held makes numbers float64s where those hold them, in lists and objects too.
func held(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name, one := range v {
			v[name] = held(one)
		}
	case []any:
		for i, one := range v {
			v[i] = held(one)
		}
	case json.Number:
		f, err := v.Float64()
		if err == nil && decimal(strconv.FormatFloat(f, 'g', -1, 64)) == decimal(v.String()) {
			return f
		}
	}
	return value
}

// magnitude is digits without zeros around them, and the power of ten behind them.
type magnitude struct {
	digits string
	power  int
}

// decimal reads a number without its sign.
func decimal(text string) magnitude {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "-0")
	short := strings.TrimRight(digits, "0")
	if short == "" {
		return magnitude{} // nought has any power
	}
	power, _ := strconv.Atoi(exponent) // one that is too large is of no float64
	return magnitude{short, power - len(fraction) + len(digits) - len(short)}
}
