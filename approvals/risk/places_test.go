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
		if v := lockedBy(e, tt.command); v.ReadOnly != tt.reads {
			t.Errorf("%s: proven = %v, want %v (%v)", tt.command, v.ReadOnly, tt.reads, v.Reasons)
		}
	}
}

func TestTheBotsOwnFilesAreSecretsWhereverTheyUsuallyLie(t *testing.T) {
	for _, command := range []string{
		"cat /var/lib/countersign/data/outputs/x", "strings /srv/x/countersign.db", "cat ~/.local/share/countersign/bot/web.key",
		"cat /etc/countersign/credentials/OPENAI_API_KEY", "tail countersign.db.journal",
	} {
		if v := locked(command); v.ReadOnly {
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

func TestPathsAreJudgedInTheDirectoryWhereTheyAreRead(t *testing.T) {
	for _, tt := range []struct {
		dir, command string
		reads        bool
	}{
		{"/srv/app", "grep -r x .", true},
		{"/srv/app", "grep -r x ..", true},
		{"/srv/app", "grep -r x ../..", false},
		{"/srv/app", "cat ../conf/app.yml", true},
		{"/srv/app", "cat *.log", true},
		{"/srv/app", "cd /etc && grep -r x .", false},
		{"/srv/app", "cd /var/log && grep -r x .", true},
		{"/srv/app", "cd conf && grep -r x .", true},
		{"/srv/app", "cd conf; grep -r x .", true},
		{"/srv/app", "cd conf && cat dev/watchdog", true},
		{"/srv/app", "cd /; cat dev/watchdog", false},
		{"/root", "grep -r x .", false},
		{"/root", "cat .ssh/mine", false},
		{"/root", "cat notes.txt", true},
		{"/root/.ssh", "cat mine", false},
		{"/root/.ssh", "ls -la", true},
		{"/root/.ssh", "cd /srv && cat mine", true},
		{"/root/.ssh", "cd /srv; cat mine", false}, // the directory may not be there
		{"/root/.ssh", "(cd /srv); cat mine", false},
		{"/root/.ssh", "cd /srv || exit; cat mine", false},
		{"/", "cat dev/watchdog", false},
		{"/", "cat proc/1/environ", false},
		{"/", "head -3 etc/hosts", true},
		{"/dev", "cat watchdog", false},
		{"/proc/1", "cat environ", false},
		{"/proc/1/root/etc", "grep -r x .", false},
		{"", "grep -r x .", false},
		{"", "grep -r x", false},
		{"", "cat *.log", false},
		{"", "cat app.log", true},
		{"", "cat dev/watchdog", false},
		{"", "cd /srv/app && grep -r x .", true},
		{"", "cd /srv/app; grep -r x .", false},
		{"not/whole", "grep -r x .", false},
	} {
		v := Judge(Text{Command: tt.command, Dir: tt.dir, Locked: true, Shell: Bash})
		if v.ReadOnly != tt.reads {
			t.Errorf("%q in %q: proven %v: %q", tt.command, tt.dir, v.ReadOnly, v.Reasons)
		}
	}
}

func TestPlacesOfSecretsAreNotReadFromWithin(t *testing.T) {
	e, err := New(Extension{Secrets: []string{"/srv/bot/data"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		dir, command string
		reads        bool
	}{
		{"/srv/bot", "cat data/x", false},
		{"/srv/bot", "cat data/../data/x", false},
		{"/srv/bot/data", "cat x", false},
		{"/srv/bot/data", "cat ./x", false},
		{"/srv/bot/other", "cat ../data/x", false},
		{"/srv/bot/other", "cat x", true},
		{"/srv", "cd bot && cat data/x", false},
		{"/srv", "cd bot/data && cat x", false},
		{"/srv", "grep -r x .", false},
		{"/srv/bot", "cat d*/x", false},
		{"", "cat x", false},
		{"", "ls", true},
	} {
		v := e.Judge(Text{Command: tt.command, Dir: tt.dir, Shell: Bash})
		if v.ReadOnly != tt.reads {
			t.Errorf("%q in %q: proven %v: %q", tt.command, tt.dir, v.ReadOnly, v.Reasons)
		}
	}
}
