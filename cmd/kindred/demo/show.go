package demo

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// at finds the trait at a dotted path; a name with a dot in it goes first.
func at(traits map[string]any, path string) any {
	if v, ok := traits[path]; ok {
		return v
	}
	name, rest, nested := strings.Cut(path, ".")
	inner, ok := traits[name].(map[string]any)
	if !nested || !ok {
		return nil
	}
	return at(inner, rest)
}

// show writes a trait's value for a person to read.
func show(value any) string {
	switch v := value.(type) {
	case nil:
		return "-"
	case string:
		return v
	case bool:
		if v {
			return "yes"
		}
		return "no"
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case []any:
		parts := make([]string, len(v))
		for i, item := range v {
			parts[i] = show(item)
		}
		return strings.Join(parts, " + ")
	case map[string]any:
		lat, north := v["lat"].(float64)
		lon, east := v["lon"].(float64)
		if north && east {
			return show(lat) + " / " + show(lon)
		}
	}
	text, err := json.Marshal(value)
	if err != nil {
		return "?"
	}
	return string(text)
}

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }

// fixed writes a number with so many decimals.
func fixed(v float64, decimals int) string { return strconv.FormatFloat(v, 'f', decimals, 64) }
