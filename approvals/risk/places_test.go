package risk

import (
	"strings"
	"testing"
)

func TestPlacesOfSecretsAreNotReadUnasked(t *testing.T) {
	e, err := New(Extension{Secrets: []string{"/srv/bot/data", "/opt/keys/one.txt/"}})
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		command string
		reads   bool
	}{
		{"cat /srv/bot/data/x", false},
		{"cat /srv/bot/data", false},
		{"cat /srv/bot/other/../data/x", false},
		{"cat /srv/bot/d*/x", false},
		{"cat /srv/bot/data/*", false},
		{"cat /srv/*/*/x", false},
		{"cat < /srv/bot/data/x", false},
		{"head -n 3 /opt/keys/one.txt", false},
		{"grep -r token /srv", false},
		{"grep -r token /srv/bot", false},
		{"grep -r token /s*/bot", false},
		{"find /srv -type f -exec cat {} +", false},
		{"grep token /srv/bot/data/x", false},
		{"ls -l /srv/bot/data", true},
		{"stat /srv/bot/data/x", true},
		{"cat /srv/bot/database", true},
		{"cat /srv/bot/x", true},
		{"cat /srv/bot/*", false}, // a place can be a file
		{"cat /opt/keys/two.txt", true},
		{"grep -r token /srv/web", true},
		{"grep -rl token /srv", true},
	}
	for _, tt := range tests {
		if v := e.Classify(tt.command); v.ReadOnly != tt.reads {
			t.Errorf("%s: proven = %v, want %v (%v)", tt.command, v.ReadOnly, tt.reads, v.Reasons)
		}
	}
}

func TestTheBotsOwnFilesAreSecretsWhereverTheyUsuallyLie(t *testing.T) {
	for _, command := range []string{
		"cat /var/lib/countersign/data/outputs/x", "strings /srv/x/countersign.db", "cat ~/.local/share/countersign/bot/web.key",
		"cat /etc/countersign/credentials/OPENAI_API_KEY", "tail countersign.db.journal",
	} {
		if v := Classify(command); v.ReadOnly {
			t.Errorf("%s is proven to be harmless", command)
		}
	}
}

func TestPlacesThatSayTooLittleOrTooMuchAreRefused(t *testing.T) {
	for _, place := range []string{"", "keys", "~/keys", "/", "/srv/..", "/srv/*/keys", `/srv/\x`} {
		if _, err := New(Extension{Secrets: []string{place}}); err == nil || !strings.Contains(err.Error(), "; ") {
			t.Errorf("%q: %v, want one sentence with what to do", place, err)
		}
	}
	if _, err := New(Extension{Secrets: make([]string, maxPlaces+1)}); err == nil {
		t.Error("any number of places is taken")
	}
}
