// Package domain holds the rules. An aggregate folds the events of its stream
// and decides which may follow: deciding may refuse with a fault, folding may
// not. Nothing here reads a clock, a random source or a database.
package domain
