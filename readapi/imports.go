package readapi

import (
	"context"

	"kindred/domain/id"
	"kindred/httpapi"
)

// Imports knows how far imports have come that are applied in the background.
type Imports interface {
	// Get returns an import, or fails with a fault of kind Missing.
	Get(ctx context.Context, client id.Client, named id.Import) (httpapi.Import, error)
}

// GetImport shows an import.
func (a *API) GetImport(ctx context.Context, r httpapi.GetImportRequestObject) (httpapi.GetImportResponseObject, error) {
	client, _ := asked(ctx)
	found, err := a.Imports.Get(ctx, client, id.Import(r.ImportID))
	return httpapi.GetImport200JSONResponse(found), err
}
