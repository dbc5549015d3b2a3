// Package console serves the dashboard at /console/: pages that the server draws from
// answers of the public API, and from nothing else. A page calls the API in the same
// process through the Go SDK, with the token of who looks at it: the same checks, limits
// and scopes hold as for anybody who calls it over the network.
//
// A page is a handler in the file of its name and a template of that name in pages/. It
// works without JavaScript; static/console.js makes it nicer.
package console
