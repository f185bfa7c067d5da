package slack_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// front is an HTTP server whose handler is known later than its address.
type front struct{ h atomic.Pointer[http.Handler] }

func (f *front) listen(t *testing.T) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := f.h.Load(); h != nil {
			(*h).ServeHTTP(w, r)
			return
		}
		http.Error(w, "not ready", http.StatusServiceUnavailable)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func (f *front) set(h http.Handler) { f.h.Store(&h) }
