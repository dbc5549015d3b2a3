package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	kindred "kindred/sdk/go"
)

// maxLine is how long a line may be that is typed.
// limit: tools | an address or a password that is typed | {maxLine B}, what is longer is refused
const maxLine = 4096

func (e environ) loginCommand() *cobra.Command {
	var email string
	c := e.command(cobra.Command{
		Use:   "login",
		Short: "Log in as a member, for 7 days at most, and keep the login with the profile",
		Long: "Asks for an e-mail address and a password, opens a session, and keeps its secret in profiles.json, which you alone may read.\n" +
			"Where standard input is no terminal, its first line is the password, and --email the address; without --email the address is the first line,\n" +
			"and the password the second. The session ends after 12 hours without use.",
		Example: "  kindred login\n  kindred login --url https://kindred.example.com --profile production\n  pass show kindred | kindred login --email ada@example.com",
		Args:    cobra.NoArgs,
	}, func(ctx context.Context, c *call) error { return login(ctx, c, email) })
	c.Flags().StringVar(&email, "email", "", "the member's e-mail address (default: asked for)")
	return c
}

func login(ctx context.Context, c *call, email string) error {
	stored, err := c.profiles()
	if err != nil {
		return err
	}
	before := stored.Profiles[c.name()]
	k, err := kindred.New(kindred.Config{BaseURL: c.where(before), Open: true})
	if err != nil {
		return err
	}
	in := &typed{from: c.InOrStdin(), to: c.errs}
	asked := email == ""
	if asked {
		if email, err = unlessInterrupted(ctx, func() (string, error) { return in.line("E-mail address: ") }); err != nil {
			return err
		}
	}
	password, err := in.hidden(ctx, "Password: ")
	if _, shown := in.terminal(); err != nil && asked && !shown {
		err = fmt.Errorf("%w; without --email the first line of standard input is the address, and the second the password", err)
	}
	if err != nil {
		return err
	}
	opened, err := k.Authentication.CreateSession(ctx, kindred.TokenRequest{Email: &email, Password: password})
	if err != nil {
		return err
	}
	err = c.change(func(p *profile) {
		p.URL, p.ClientID, p.Member, p.Session, p.SessionID = k.BaseURL(), opened.Client.ID, email, opened.Secret, opened.Session.ID
	})
	if err != nil {
		return fmt.Errorf("the login cannot be kept: %w", errors.Join(err, end(ctx, profile{URL: k.BaseURL(), Session: opened.Secret, SessionID: opened.Session.ID})))
	}
	if err := end(ctx, before); err != nil {
		c.say("the login before could not be ended, and lasts for 12 hours without use: %s", plain(err))
	}
	if c.json {
		return c.print(who{Profile: c.name(), Credential: "session", URL: k.BaseURL(), ClientID: opened.Client.ID, Name: opened.Client.Name, Member: email})
	}
	c.say("Logged in to %s as %s, until %s.", Printable(opened.Client.Name), Printable(email), opened.Session.ExpiresAt.Local().Format("Monday, 2 January, 15:04"))
	return nil
}

func (e environ) logoutCommand() *cobra.Command {
	return e.command(cobra.Command{
		Use:     "logout",
		Short:   "End the login of a profile, there and here",
		Example: "  kindred logout\n  kindred logout --profile production",
		Args:    cobra.NoArgs,
	}, logout)
}

func logout(ctx context.Context, c *call) error {
	stored, err := c.profiles()
	if err != nil {
		return err
	}
	before := stored.Profiles[c.name()]
	if before.Session == "" {
		return fmt.Errorf("the profile %s has no login", c.name())
	}
	ended := end(ctx, before)
	err = c.change(func(p *profile) { p.Session, p.SessionID, p.Member, p.ClientID = "", "", "", "" })
	if ended != nil {
		ended = fmt.Errorf("the login is forgotten here, and could not be ended there, where it lasts for 12 hours without use: %w", plain(ended))
	}
	if err := errors.Join(err, ended); err != nil {
		return err
	}
	if c.json {
		return c.print(map[string]string{"profile": c.name(), "ended": before.SessionID})
	}
	c.say("Logged out.")
	return nil
}

// end ends the session of a stored login, if that has one which lasts.
func end(ctx context.Context, p profile) error {
	if p.Session == "" {
		return nil
	}
	k, err := kindred.New(kindred.Config{BaseURL: p.URL, Session: p.Session})
	if err != nil {
		return err
	}
	err = k.Members.RevokeSession(ctx, p.SessionID)
	if refused, ok := errors.AsType[*kindred.Error](err); ok && (refused.Status == http.StatusUnauthorized || refused.Status == http.StatusNotFound) {
		return nil // it has ended
	}
	return err
}

// where the service is, for a login.
func (o *options) where(p profile) string {
	return cmp.Or(o.url, o.getenv("KINDRED_URL"), p.URL, localURL)
}

// loggedIn makes a client of the profile's login, which goes nowhere but to where it was made.
func (o *options) loggedIn(p profile) (*kindred.Client, error) {
	if p.Session == "" {
		return nil, fmt.Errorf("neither KINDRED_API_KEY is set, nor is there a login of the profile %s: see kindred login", o.name())
	}
	if to := o.where(p); !sameService(to, p.URL) {
		return nil, fmt.Errorf("the login of the profile %s is for %s and goes nowhere else: log in to %s with another --profile", o.name(), p.URL, to)
	}
	return kindred.New(kindred.Config{BaseURL: p.URL, Session: p.Session, Sandbox: o.sandbox})
}

func sameService(a, b string) bool {
	x, errX := url.Parse(strings.TrimRight(a, "/"))
	y, errY := url.Parse(strings.TrimRight(b, "/"))
	return errX == nil && errY == nil && x.Scheme == y.Scheme && x.Host == y.Host && x.Path == y.Path
}

// typed reads what is typed, or piped.
type typed struct {
	from  io.Reader
	to    io.Writer
	lines *bufio.Reader
}

// line reads a line.
func (t *typed) line(prompt string) (string, error) {
	if t.lines == nil {
		t.lines = bufio.NewReader(io.LimitReader(t.from, 2*maxLine))
	}
	if _, ok := t.terminal(); ok {
		fmt.Fprint(t.to, prompt)
	}
	text, err := t.lines.ReadString('\n')
	text = strings.TrimRight(text, "\r\n")
	switch {
	case text == "" && (err == nil || errors.Is(err, io.EOF)):
		return "", fmt.Errorf("%s nothing was given", prompt)
	case err != nil && !errors.Is(err, io.EOF):
		return "", err
	case len(text) > maxLine:
		return "", fmt.Errorf("%s too long", prompt)
	}
	return text, nil
}

// hidden reads a line that a terminal does not show.
func (t *typed) hidden(ctx context.Context, prompt string) (string, error) {
	terminal, ok := t.terminal()
	if !ok {
		return unlessInterrupted(ctx, func() (string, error) { return t.line(prompt) })
	}
	shown, err := term.GetState(int(terminal.Fd()))
	if err != nil {
		return "", err
	}
	fmt.Fprint(t.to, prompt)
	text, err := unlessInterrupted(ctx, func() ([]byte, error) { return term.ReadPassword(int(terminal.Fd())) })
	if ctx.Err() != nil {
		err = errors.Join(ctx.Err(), term.Restore(int(terminal.Fd()), shown))
	}
	fmt.Fprintln(t.to)
	if err == nil && len(text) == 0 {
		err = fmt.Errorf("%s nothing was given", prompt)
	}
	return string(text), err
}

// unlessInterrupted reads what may never come. What goes on reading ends with the process.
func unlessInterrupted[T any](ctx context.Context, read func() (T, error)) (got T, err error) {
	type answer struct {
		got T
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		got, err := read()
		answers <- answer{got, err}
	}()
	select {
	case a := <-answers:
		return a.got, a.err
	case <-ctx.Done():
		return got, ctx.Err()
	}
}

func (t *typed) terminal() (*os.File, bool) {
	file, ok := t.from.(*os.File)
	return file, ok && term.IsTerminal(int(file.Fd()))
}
