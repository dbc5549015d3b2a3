// Package conformance holds the suite that every SDK passes: against a hostile
// server that the suite plays, and against kindred, built from this tree.
//
// An SDK is driven by a program of its language that reads commands, a line of
// JSON each, and writes a reply to each, in any order: {"id", "ok"} or {"id",
// "error": {"kind", …}}. Commands run at the same time. They are:
//
//	new        makes a client
//	call       calls an operation; of a list it reads all, or the first "most"
//	events     pulls or follows events, by "method", until there were "most"; tells their ids and the last
//	put_back   reads all users, and puts the traits of each as they were read
//	import_back reads all users, and imports them as they were read
//	raw        reads the list of users as call does, with the HTTP client of the language alone
//	export     reads an export of the history
//	client_id  tells the client's id
//	print      prints the client in all ways that the language has
//	memory     tells how many bytes are in use
//	fake       starts the server of the SDK's test kit; "fake_answer" and "fake_requests" work on it
//	cancel     cancels the command "target"
//	verify     verifies a delivery
//	sign       signs one
//	signed     makes one of an event, and signs it
//
// With "show" a failed call tells in "shown" all that prints its fault.
//
// KINDRED_SDKS names the SDKs to test, "go" where it is not set: go test needs
// Go alone. make test-sdk tests all, and fails where a language is missing.
package conformance
