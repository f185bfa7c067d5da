package webpush

import (
	"bytes"
	"crypto/ecdh"
	"errors"
	"strings"
	"testing"
	"time"
)

// The example of RFC 8291, appendix A.
func TestTheStandardsExample(t *testing.T) {
	raw := func(s string) []byte {
		b, err := decode(s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	once, err := ecdh.P256().NewPrivateKey(raw("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"))
	if err != nil {
		t.Fatal(err)
	}
	browser, err := ecdh.P256().NewPublicKey(raw("BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := encrypt([]byte("When I grow up, I want to be a watermelon"), browser, raw("BTBZMqHH6r4Tts7J_aSIgg"), once, raw("DGv6ra1nlYgDCS1FRnbzlw"))
	if err != nil {
		t.Fatal(err)
	}
	want := "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
	if !bytes.Equal(got, raw(want)) {
		t.Errorf("got  %s\nwant %s", encode(got), want)
	}
}

func TestWhyAServiceRefuses(t *testing.T) {
	for body, want := range map[string]string{
		`{"reason":"BadJwtToken"}`: "BadJwtToken", `{"code":403,"errno":109,"message":"Invalid\nbearer"}`: "Invalid bearer", "the key in the \x00 header\n": "the key in the header",
		"<html>no</html>": "", "": "", strings.Repeat("x", 500): strings.Repeat("x", maxReason) + "…",
	} {
		if got := reasonOf([]byte(body)); got != want {
			t.Errorf("%.40q: %q, not %q", body, got, want)
		}
	}
}

func TestTheSameSeedMakesTheSameKey(t *testing.T) {
	sender := func(seed string) *Sender {
		s, err := New(Config{Seed: []byte(seed), Subject: "https://bot.example.com"})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	a, b, c := sender("a"), sender("a"), sender("c")
	if a.PublicKey() != b.PublicKey() || a.PublicKey() == c.PublicKey() || len(a.PublicKey()) != 87 {
		t.Errorf("%s %s %s", a.PublicKey(), b.PublicKey(), c.PublicKey())
	}
}

func TestOnlyPushServicesOfTheInternetAreReached(t *testing.T) {
	s, err := New(Config{Seed: []byte("a"), Subject: "https://bot.example.com", Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	sub := func(endpoint string) (sub Subscription) {
		sub.Endpoint = endpoint
		sub.Keys.P256dh = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4="
		sub.Keys.Auth = "BTBZMqHH6r4Tts7J_aSIgg=="
		return sub
	}
	for _, bad := range []string{"", "http://push.example.com/1", "ftp://push.example.com/1", "https://", "https://a:b@push.example.com/1", "javascript:x"} {
		if err := s.Check(sub(bad)); !errors.Is(err, ErrSubscription) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if err := s.Check(sub("https://push.example.com/1")); err != nil {
		t.Error(err)
	}
	for _, change := range []func(*Subscription){func(s *Subscription) { s.Keys.P256dh = "BCVx" }, func(s *Subscription) { s.Keys.Auth = "BTBZ" }, func(s *Subscription) { s.Keys.Auth = "%" }} {
		bad := sub("https://push.example.com/1")
		change(&bad)
		if err := s.Check(bad); !errors.Is(err, ErrSubscription) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	for _, inside := range []string{"127.0.0.1:443", "10.1.2.3:443", "192.168.0.1:443", "169.254.169.254:443", "0.0.0.0:443", "[::1]:443", "[fe80::1]:443", "[fd00::1]:443", "[::ffff:127.0.0.1]:443", "224.0.0.1:443", "100.100.100.200:443", "198.18.0.1:443", "168.63.129.16:443", "[64:ff9b::7f00:1]:443", "[2002:a00:1::]:443", "[::127.0.0.1]:443", "240.0.0.1:443"} {
		if err := onlyPublic("tcp", inside, nil); !errors.Is(err, errPrivate) {
			t.Errorf("%s: %v", inside, err)
		}
	}
	if err := onlyPublic("tcp", "8.8.8.8:443", nil); err != nil {
		t.Error(err)
	}
	if err := s.Send(t.Context(), sub("https://127.0.0.1:1/x"), Message{Body: []byte("x")}); !errors.Is(err, errPrivate) && !proxied() {
		t.Errorf("%v", err)
	}
}
