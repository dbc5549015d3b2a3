package traits

import "strings"

// Permit returns the rule that a list of permitted paths means: a path permits
// itself and what is below it.
func Permit(paths []string) func(path string) bool {
	permitted := make(map[string]bool, len(paths))
	for _, p := range paths {
		permitted[p] = true
	}
	return func(path string) bool {
		for {
			if permitted[path] {
				return true
			}
			dot := strings.LastIndexByte(path, '.')
			if dot < 0 {
				return false
			}
			path = path[:dot]
		}
	}
}
