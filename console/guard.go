package console

import (
	"crypto/subtle"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// policy lets the page run its own files and nothing else: no inline script or
// style, no other server, no frame around it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
	"img-src 'self' data:; manifest-src 'self'; worker-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"

// apiVersion is the version of the API that docs/openapi.yaml describes.
const apiVersion = "1"

// guard sets the headers of every answer and refuses requests that name
// another host.
func (a *Adapter) guard(next http.Handler) http.Handler {
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
		if !a.knownHost(r) {
			to := a.properOrigin(r)
			a.failPage(w, r, http.StatusMisdirectedRequest, headOtherName, sayOtherName(to), to)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// knownHost refuses the names that a foreign page could have pointed at this
// machine (DNS rebinding).
func (a *Adapter) knownHost(r *http.Request) bool {
	if a.origin != "" {
		_, host, _ := strings.Cut(a.origin, "://")
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

func (a *Adapter) properOrigin(r *http.Request) string {
	if a.origin != "" {
		return a.origin
	}
	if addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		return "http://" + addr.String()
	}
	return "its own address"
}

// pageOrigin is the origin that our own page has.
func (a *Adapter) pageOrigin(r *http.Request) string {
	if a.origin != "" {
		return a.origin
	}
	if r.TLS != nil {
		return "https://" + strings.ToLower(r.Host)
	}
	return "http://" + strings.ToLower(r.Host)
}

// ownPage tells whether a request was made by our own page. A browser sends
// Origin with every POST and every WebSocket, so a missing one is refused too.
func (a *Adapter) ownPage(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" {
		return false
	}
	return len(r.Header.Values("Origin")) == 1 && r.Header.Get("Origin") == a.pageOrigin(r)
}

// foreign tells whether a browser says that another page made a request. Unlike
// ownPage it lets through who says nothing: a program, or somebody who typed the
// address.
func (a *Adapter) foreign(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return true
	}
	for _, origin := range r.Header.Values("Origin") {
		if origin != a.pageOrigin(r) {
			return true
		}
	}
	return false
}

func (a *Adapter) ownToken(r *http.Request, s session) bool {
	return subtle.ConstantTimeCompare([]byte(r.Header.Get("X-CSRF-Token")), []byte(a.csrf(s))) == 1
}
