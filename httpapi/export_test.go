package httpapi

// DecodeBySchema is Decode without its short cut.
func (l UserLines) DecodeBySchema(line []byte) (NewUser, error) {
	if err := checkJSON(line); err != nil {
		return NewUser{}, err
	}
	return l.bySchema(line)
}

// Status is the table from faults to HTTP.
var Status = status
