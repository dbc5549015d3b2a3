// Package e2e holds the end-to-end tests: stories that a whole kindred is told over
// HTTP, or by its command line, on a real Postgres. They are apart from the wiring
// that they start, so that a package's own tests stay short and quick; here services
// are shared, killed, put behind poolers and standbys, and run against each other.
package e2e
