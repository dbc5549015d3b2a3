package console

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/url"
	"sync"

	kindred "kindred/sdk/go"
)

// importUsers sends a file on while the browser still sends it.
func (p *page) importUsers() error {
	file, options, err := p.chosenFile()
	if err != nil {
		return p.again(err, p.users)
	}
	api, err := p.streaming()
	if err != nil {
		return err
	}
	begun, err := api.Users.ImportLater(p.r.Context(), file, kindred.ImportUsersParams{}, options...)
	if err != nil {
		_, _ = io.CopyN(io.Discard, file, largestUnread) // else the browser is cut off while it sends
		return p.again(asCSV(err), p.users)
	}
	at := Path + "imports/" + url.PathEscape(begun.ID)
	if len(options) > 0 {
		at += "?csv=1"
	}
	http.Redirect(p.w, p.r, at, http.StatusSeeOther)
	return nil
}

// previewImport shows what is in a file before anything is recorded.
func (p *page) previewImport() error {
	file, options, err := p.chosenFile()
	if err != nil {
		return p.again(err, p.users)
	}
	api, err := p.streaming()
	if err != nil {
		return err
	}
	found, err := api.Users.PreviewImport(p.r.Context(), file, options...)
	_, _ = io.CopyN(io.Discard, file, largestUnread) // as above
	if err != nil {
		return p.again(asCSV(err), p.users)
	}
	return p.showUsers(&looked{found, len(options) > 0})
}

// looked is what is in a file that was chosen.
type looked struct {
	*kindred.ImportPreview
	CSV bool // as which it was read
}

// asCSV is an error with why the file was read as CSV, if that is what it could not be.
func asCSV(err error) error {
	if what := problemOf(err); what.Code == kindred.CodeInvalidCsv {
		return invalid("file", say("users.it_was_read_as", what.Detail))
	}
	return err
}

// largestUnread bounds what is read of a file only to answer its sender.
// limit: edge | bytes of a file that is refused, or whose preview is shown, that are read, without JavaScript | {largestUnread B}
const largestUnread = 64 << 20

// chosenFile is the file of a form, read while the browser still sends it, and how the API is to read it. By its content:
// a CSV file may be called .txt, or have no name that says what it is.
func (p *page) chosenFile() (io.Reader, []kindred.Option, error) {
	if p.r.MultipartForm != nil { // the page is made again, and its file was read
		return nil, nil, invalid("file", say("users.your_password_was"))
	}
	none := invalid("file", say("users.choose_a_file_to"))
	form, err := p.r.MultipartReader()
	if err != nil {
		return nil, nil, none
	}
	for {
		part, err := form.NextPart()
		if err != nil {
			return nil, nil, none
		}
		if part.FormName() == "key" {
			key, err := io.ReadAll(io.LimitReader(part, longestKey))
			if err != nil {
				return nil, nil, none
			}
			if err := p.ofThisClient(string(key)); err != nil {
				return nil, nil, err
			}
		}
		if part.FormName() != "file" || part.FileName() == "" {
			continue
		}
		file := bufio.NewReaderSize(part, looksAt)
		if !bytes.HasPrefix(beginning(file), []byte("{")) {
			return &inTurns{r: file}, []kindred.Option{kindred.WithCSV()}, nil
		}
		return &inTurns{r: file}, nil, nil
	}
}

// inTurns lets who sends a file on and who reads its rest take turns: where the API answers early, both do.
type inTurns struct {
	mu sync.Mutex
	r  io.Reader
}

// Read implements [io.Reader].
func (t *inTurns) Read(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.r.Read(p)
}

// looksAt is how many bytes of a file say what it is, at most.
const looksAt = 512

// beginning is what has come of a file, without blanks before it: the rest may take long. What fails is told by who reads on.
func beginning(file *bufio.Reader) (text []byte) {
	var err error
	for most := 1; len(text) == 0 && err == nil; most = file.Buffered() + 1 {
		if _, err = file.Peek(most); err == nil {
			begins, _ := file.Peek(file.Buffered())
			text = bytes.TrimLeft(bytes.TrimPrefix(begins, []byte("\ufeff")), " \t\r\n")
		}
	}
	return text
}

func (p *page) showImport() error {
	one, err := p.api.Users.GetImport(p.r.Context(), p.r.PathValue("id"))
	if err != nil {
		return err
	}
	if one.EndedAt == nil {
		p.w.Header().Set("Refresh", "1")
	}
	if p.r.URL.Query().Has("csv") { // whose header is counted, and is nobody
		one.Lines, one.LinesDone = max(one.Lines-1, 0), max(one.LinesDone-1, 0)
	}
	return p.show("import", "Users", say("titles.import"), one)
}
