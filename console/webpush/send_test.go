package webpush_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"countersign/console/webpush"
	"countersign/console/webpush/pushtest"
)

func TestABrowserReadsWhatIsSent(t *testing.T) {
	service := pushtest.New(t)
	s, err := webpush.New(webpush.Config{Seed: []byte("secret"), Subject: "mailto:ops@example.com", Local: true})
	if err != nil {
		t.Fatal(err)
	}
	b := service.Subscribe(s.PublicKey())
	long := strings.Repeat("é", webpush.MaxBody/2)
	for _, m := range []webpush.Message{
		{Body: []byte("Restart nginx"), TTL: 90 * time.Second, Urgent: true, Topic: "abc_-9"}, {Body: []byte(long)}, {},
	} {
		if err := s.Send(t.Context(), b.Subscription(), m); err != nil {
			t.Fatal(err)
		}
	}
	got := b.Got()
	if len(got) != 3 || got[0] != (pushtest.Message{Body: "Restart nginx", TTL: 90, Urgency: "high", Topic: "abc_-9", Sub: "mailto:ops@example.com"}) || got[1].Body != long || got[2].Body != "" {
		t.Errorf("%+v", got)
	}
	if err := s.Send(t.Context(), b.Subscription(), webpush.Message{Body: make([]byte, webpush.MaxBody+1)}); err == nil {
		t.Error("a message that no service takes")
	}
	service.Refuse(http.StatusServiceUnavailable)
	if err := s.Send(t.Context(), b.Subscription(), webpush.Message{}); err == nil || errors.Is(err, webpush.ErrGone) {
		t.Errorf("%v", err)
	}
	service.Refuse(0)
	b.Leave()
	if err := s.Send(t.Context(), b.Subscription(), webpush.Message{}); !errors.Is(err, webpush.ErrGone) {
		t.Errorf("%v", err)
	}
}
