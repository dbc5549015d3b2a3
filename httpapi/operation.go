package httpapi

type operation struct{}
