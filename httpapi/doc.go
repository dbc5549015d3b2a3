// Package httpapi is the service's one edge: whatever reaches a handler is
// authenticated, within its limits and valid under the contract, openapi.yaml,
// and whatever leaves is what the contract says, a refusal as
// application/problem+json included.
package httpapi

//go:generate go run github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2 -config oapi-codegen.yaml openapi.yaml

import (
	"bytes"
	_ "embed"
)

//go:embed openapi.yaml
var contract []byte

// Contract returns openapi.yaml.
func Contract() []byte { return bytes.Clone(contract) }
