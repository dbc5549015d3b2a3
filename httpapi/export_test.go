package httpapi

// DecodeBySchema is Decode without its short cut.
func (l UserLines) DecodeBySchema(line []byte) (NewUser, error) {
	return l.bySchema(line, checkJSON(line))
}

// Status is the table from faults to HTTP.
var Status = status
