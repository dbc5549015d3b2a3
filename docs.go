// Package kindred holds the documentation, which the binary serves at /docs.
package kindred

import "embed"

// Documentation is README.md with the pages that it leads to, under their paths
// in the repository.
//
//go:embed README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md docs
var Documentation embed.FS
