package health

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"countersign/approvals/audit"
	"countersign/bot/replicas"
	"countersign/store"
	"countersign/store/mem"
)

// recordMetrics serves those of the record of decisions alone.
func recordMetrics(t *testing.T, db store.DB) http.Handler {
	t.Helper()
	h, err := Metrics(db, replicas.Alone("ops", 1, db), func(prometheus.Registerer) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestMetrics(t *testing.T) {
	db := mem.Open()
	read := func() string {
		w := httptest.NewRecorder()
		recordMetrics(t, db).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
		b, err := io.ReadAll(w.Body)
		if err != nil || w.Code != http.StatusOK {
			t.Fatal(w.Code, err)
		}
		return string(b)
	}
	if got := read(); strings.Contains(got, "countersign_audit_head{") || !strings.Contains(got, "countersign_audit_anchor_lines_total 0\n") || !strings.Contains(got, "countersign_approvals_total{what=\"asked\"} 0\n") {
		t.Error(got)
	}
	var a audit.AnchorLine
	change(t, db, func(tx store.Tx) {
		audit.Append(tx, "web:1", audit.Event{What: audit.Asked}, time.Now())
		audit.Append(tx, "web:2", audit.Event{What: "odd"}, time.Now())
		a, _ = audit.Anchor(tx, time.Now())
		audit.Append(tx, "web:1", audit.Event{What: audit.Asked}, time.Now())
	})
	got := read()
	for _, want := range []string{
		"# TYPE countersign_audit_head gauge\ncountersign_audit_head{anchor=\"0\",hash=\"" + a.Hash[:12] + "\"} 1\n",
		"# TYPE countersign_audit_anchor_lines_total counter\ncountersign_audit_anchor_lines_total 2\n",
		"countersign_approvals_total{what=\"asked\"} 2\n", "countersign_approvals_total{what=\"other\"} 1\n",
		"countersign_approvals_open 0\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is missing in\n%s", want, got)
		}
	}
	if strings.Contains(got, "go_goroutines") {
		t.Error("the global registry shows")
	}
	_ = db.Close()
	w := httptest.NewRecorder()
	recordMetrics(t, db).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	if w.Code != http.StatusInternalServerError {
		t.Errorf("a closed store: %d", w.Code)
	}
}

func change(t *testing.T, db store.DB, fn func(tx store.Tx)) {
	t.Helper()
	if err := db.Update(t.Context(), func(tx store.Tx) error { fn(tx); return nil }); err != nil {
		t.Fatal(err)
	}
}
