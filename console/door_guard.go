package console

import (
	"crypto/subtle"
	"encoding/base64"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// policy lets the page run its own files and nothing else: no inline script or
// style, no other server, no frame around it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
	"img-src 'self' data:; manifest-src 'self'; worker-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"

// apiVersion is the version of the API that docs/openapi.yaml describes.
const apiVersion = "1"

// guard knows the console's own address and page. It refuses what comes from others.
type guard struct {
	key       []byte
	origin    string // "" derives it from Host
	cookieTag string // what the names of its cookies end with
	pages     *pages
}

// wrap sets the headers of every answer and refuses requests that name
// another host.
func (g *guard) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=()")
		if strings.HasPrefix(r.URL.Path, "/api/") || strings.HasPrefix(r.URL.Path, "/oidc/") {
			h.Set("Cache-Control", "no-store")
			h.Set("API-Version", apiVersion)
		}
		if !g.knownHost(r) {
			to := g.properOrigin(r)
			g.pages.failPage(w, r, http.StatusMisdirectedRequest, headOtherName, sayOtherName(to), to)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// knownHost refuses the names that a foreign page could have pointed at this
// machine (DNS rebinding).
func (g *guard) knownHost(r *http.Request) bool {
	if g.origin != "" {
		_, host, _ := strings.Cut(g.origin, "://")
		return strings.EqualFold(r.Host, host)
	}
	addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return true
	}
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || !tcp.IP.IsLoopback() {
		return true
	}
	u, err := url.Parse("http://" + r.Host)
	if err != nil {
		return false
	}
	name := strings.ToLower(u.Hostname())
	ip := net.ParseIP(name)
	return name == "localhost" || ip != nil && ip.IsLoopback()
}

func (g *guard) properOrigin(r *http.Request) string {
	if g.origin != "" {
		return g.origin
	}
	if addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		return "http://" + addr.String()
	}
	return "its own address"
}

// pageOrigin is the origin that our own page has.
func (g *guard) pageOrigin(r *http.Request) string {
	if g.origin != "" {
		return g.origin
	}
	if r.TLS != nil {
		return "https://" + strings.ToLower(r.Host)
	}
	return "http://" + strings.ToLower(r.Host)
}

// ownPage tells whether a request was made by our own page. A browser sends
// Origin with every POST and every WebSocket, so a missing one is refused too.
func (g *guard) ownPage(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" {
		return false
	}
	return len(r.Header.Values("Origin")) == 1 && r.Header.Get("Origin") == g.pageOrigin(r)
}

// foreign tells whether a browser says that another page made a request. Unlike
// ownPage it lets through who says nothing: a program, or somebody who typed the
// address.
func (g *guard) foreign(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return true
	}
	for _, origin := range r.Header.Values("Origin") {
		if origin != g.pageOrigin(r) {
			return true
		}
	}
	return false
}

func (g *guard) ownToken(r *http.Request, s session) bool {
	return subtle.ConstantTimeCompare([]byte(r.Header.Get("X-CSRF-Token")), []byte(g.csrf(s))) == 1
}

// mayPost refuses what our own page has not sent. s is nil before there is a session.
func (g *guard) mayPost(r *http.Request, s *session) error {
	program := s != nil && s.program
	if !program && !g.ownPage(r) {
		return g.refuseForeign(r)
	}
	if s != nil && !program && !g.ownToken(r, *s) {
		return refuse(http.StatusForbidden, sayReload)
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return refuse(http.StatusUnsupportedMediaType, sayNotJSON)
	}
	return nil
}

func (g *guard) refuseForeign(r *http.Request) error {
	return refuse(http.StatusForbidden, sayNotOwnPage(g.pageOrigin(r))+" Or set the console's origin to the address you use.")
}

// csrf is the token that this session's page must send with each POST.
func (g *guard) csrf(s session) string {
	return base64.RawURLEncoding.EncodeToString(mac(g.key, "csrf", s.token))
}

func (g *guard) overTLS(r *http.Request) bool { return strings.HasPrefix(g.pageOrigin(r), "https:") }

// cookieName is a name that no other console uses: browsers keep one cookie of a
// name for all ports of a host.
func (g *guard) cookieName(r *http.Request, name string) string {
	name += g.cookieTag
	if g.overTLS(r) {
		return hostPrefix + name
	}
	return name
}

func (g *guard) cookie(r *http.Request, name, value string, age time.Duration, site http.SameSite) *http.Cookie {
	return &http.Cookie{ //nolint:gosec // Secure would keep the cookie from a page without TLS
		Name:     g.cookieName(r, name),
		Value:    value,
		Path:     "/",
		MaxAge:   int(age / time.Second),
		HttpOnly: true,
		SameSite: site,
		Secure:   g.overTLS(r),
	}
}
