package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"runtime/debug"
	"strings"
	"time"
)

// Path is where the console is served.
const Path = "/console/"

// Policy is the Content-Security-Policy of all pages.
const Policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// largestForm bounds what a form sends, in bytes, and largestEntrance what one sends to sign
// in or up; a file that is imported streams.
// limit: requests | a form of the console | {largestForm B}, to sign in or up {largestEntrance B}; a file that is imported streams | 400, on a page that says so
const (
	largestForm     = 1 << 20
	largestEntrance = 16 << 10
)

//go:embed pages/*.tmpl
var pages embed.FS

//go:embed static
var static embed.FS

// Config is what the console needs of the process that it is a part of.
type Config struct {
	API          http.Handler // the public API, as pages call it
	ProxyHeaders []string     // by which the API hears of proxies
	Next         http.Handler // what is served beside the console
	// Forms serves a request with a form, and fails where too many large ones are served.
	Forms     func(w http.ResponseWriter, r *http.Request, serve func()) error
	PublicURL string           // where browsers reach the service
	Now       func() time.Time // dates what is shown
	NewKey    func() string    // names a form, so that it takes effect once
	Logger    *slog.Logger
}

// Console serves the pages.
type Console struct {
	Config
	secure bool // browsers reach it over TLS
	pages  map[string]*template.Template
	assets map[string]asset // by path
	mux    http.ServeMux
}

// asset is a file that browsers keep for as long as its name stays.
type asset struct {
	mediaType string
	content   []byte
	squeezed  []byte // the content, by gzip
}

// New makes a handler that serves the console, and leaves other paths to Next. A
// browser that asks for the root is led to the console.
func New(c Config) (http.Handler, error) {
	public, err := url.Parse(c.PublicURL)
	if err != nil {
		return nil, fmt.Errorf("the public URL: %w", err)
	}
	s := &Console{Config: c, secure: public.Scheme == "https", assets: map[string]asset{}}
	if err := s.loadAssets(); err != nil {
		return nil, err
	}
	if err := s.loadPages(); err != nil {
		return nil, err
	}
	s.route()
	origin := http.NewCrossOriginProtection()
	if public.Host != "" {
		if err := origin.AddTrustedOrigin(public.Scheme + "://" + public.Host); err != nil {
			return nil, fmt.Errorf("the public URL as an origin: %w", err)
		}
	}
	origin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.refuse(w, r, http.StatusForbidden, say("problem.this_form_came_from"), say("problem.open_the_console_itself"))
	}))
	pages, home := s.guarded(origin.Handler(&s.mux)), s.guarded(http.RedirectHandler(Path, http.StatusSeeOther))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch asked := r.URL.Path; {
		case strings.HasPrefix(asked, Path):
			pages.ServeHTTP(w, r)
		case asked+"/" == Path, asked == "/" && r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html"):
			home.ServeHTTP(w, r)
		default:
			s.Next.ServeHTTP(w, r)
		}
	}), nil
}

// guarded sets the headers that hold for all pages, and answers for a page that panics.
func (s *Console) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", Policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		defer func() { //nolint:contextcheck // it has the request's
			if p := recover(); p != nil {
				if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
					panic(p)
				}
				s.Logger.ErrorContext(r.Context(), "a page panicked", "panic", p, "stack", string(debug.Stack()))
				s.refuse(w, r, http.StatusInternalServerError, say("problem.this_page_failed"), say("problem.that_is_our_fault"))
			}
		}()
		next.ServeHTTP(w, r)
	})
}

func (s *Console) loadAssets() error {
	return fs.WalkDir(static, "static", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := static.ReadFile(name)
		if err != nil {
			return err
		}
		mediaType := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}[path.Ext(name)]
		if mediaType == "" {
			return fmt.Errorf("console: %s has no known type", name)
		}
		if name == "static/console.js" {
			content = append([]byte("const words = "+section("script")+";\n"), content...)
		}
		hash := sha256.Sum256(content)
		base := path.Base(name)
		squeezed, err := squeeze(content)
		s.assets[Path+"static/"+hex.EncodeToString(hash[:6])+"/"+base] = asset{mediaType, content, squeezed}
		return err
	})
}

// squeeze compresses what is the same for everybody. Pages are sent as they are: what they
// repeat of a request, beside what they tell of people, would show in their length.
func squeeze(content []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	err = w.Close()
	return out.Bytes(), err
}

// assetPath is where a file of static is served; its name changes with its content.
func (s *Console) assetPath(name string) (string, error) {
	for at := range s.assets {
		if path.Base(at) == name {
			return at, nil
		}
	}
	return "", fmt.Errorf("console: there is no %s", name)
}

func (s *Console) serveAsset(w http.ResponseWriter, r *http.Request) {
	found, ok := s.assets[r.URL.Path]
	if !ok {
		s.refuse(w, r, http.StatusNotFound, say("problem.there_is_no_such"), "")
		return
	}
	w.Header().Set("Content-Type", found.mediaType)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	w.Header().Set("Vary", "Accept-Encoding")
	content := found.content
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") && r.Header.Get("Range") == "" {
		w.Header().Set("Content-Encoding", "gzip")
		content = found.squeezed
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

func (s *Console) loadPages() error {
	layout, err := template.New("layout").Funcs(s.functions()).ParseFS(pages, "pages/layout.tmpl", "pages/parts.tmpl")
	if err != nil {
		return fmt.Errorf("console: %w", err)
	}
	s.pages = map[string]*template.Template{}
	names, err := fs.Glob(pages, "pages/*.tmpl")
	if err != nil {
		return err
	}
	for _, file := range names {
		name := strings.TrimSuffix(path.Base(file), ".tmpl")
		if name == "layout" || name == "parts" {
			continue
		}
		page, err := template.Must(layout.Clone()).ParseFS(pages, file)
		if err != nil {
			return fmt.Errorf("console: %w", err)
		}
		s.pages[name] = page
	}
	return nil
}
