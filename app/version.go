package app

import "runtime/debug"

// Version is the module's version, or the revision it was built from.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return info.Main.Version + " (" + s.Value[:min(12, len(s.Value))] + ")"
		}
	}
	return info.Main.Version
}
