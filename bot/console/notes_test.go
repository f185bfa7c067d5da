package console

import (
	"log/slog"
	"testing"
	"time"

	"countersign/console"
	"countersign/console/oidc"
)

func TestWhatDoctorShowsIsKept(t *testing.T) {
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	if _, ok := LastSignIn(dir); ok || len(PushProblems(dir)) > 0 {
		t.Error("there is something at first")
	}
	keepSample(dir, log)(oidc.Sample{At: time.Unix(1, 0).UTC(), Claims: map[string]string{"email": `"a"`}, Refused: "no"})
	if s, ok := LastSignIn(dir); !ok || s.Claims["email"] != `"a"` || s.Refused != "no" {
		t.Errorf("%+v", s)
	}
	note := keepProblems(dir, log)
	note(console.PushProblem{Device: "b", User: "bob", Name: "Safari", Problem: "refused"})
	note(console.PushProblem{Device: "a", User: "ann", Name: "Chrome", Problem: "refused"})
	note(console.PushProblem{Device: "b"})
	if got := PushProblems(dir); len(got) != 1 || got[0].User != "ann" {
		t.Errorf("%+v", got)
	}
}

// TestOnlyAPublicAddressIsGivenToPushServices: Apple's refuses others.
func TestOnlyAPublicAddressIsGivenToPushServices(t *testing.T) {
	for origin, want := range map[string]bool{
		"https://bot.example.com": true, "https://bot.example.com:8443": true, "http://bot.example.com": false, "https://bot.internal": false, "https://bot.corp": false,
		"https://localhost": false, "https://bot": false, "https://10.0.0.1": false, "https://[::1]:8443": false, "": false,
	} {
		if got := isPublic(origin); got != want {
			t.Errorf("%q: %v", origin, got)
		}
	}
}
