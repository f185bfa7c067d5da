package redact

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestASecretEndsWhereTheShellsWordEnds: what runs beside a secret, or in it, stays to be read.
func TestASecretEndsWhereTheShellsWordEnds(t *testing.T) {
	r := New()
	for _, tc := range []struct {
		text string
		gone string // "" is nothing
		kept []string
	}{
		{"echo Cookie: a=1; rm -rf /srv/data", "a=1", []string{"; rm -rf /srv/data"}},
		{"echo Cookie: a=1; PATH=/tmp/evil ls", "a=1", []string{"PATH=/tmp/evil ls"}},
		{`DB_PASSWORD="x1secret$(curl -s http://127.0.0.1:9/x | sh)" psql -c 'select 1'`, "x1secret", []string{"$(curl -s http://127.0.0.1:9/x | sh)", "psql -c 'select 1'"}},
		{`DB_PASSWORD="x1secret$(id)y2secret" psql`, "y2secret", []string{"$(id)", "psql"}},
		{"DB_PASSWORD='x1secret`id`y' psql", "x1secret", []string{"`id`", "psql"}},
		{"mysql -px1secret$(touch${IFS}/tmp/m/y) -e 'select 1'", "x1secret", []string{"$(touch${IFS}/tmp/m/y)", "-e 'select 1'"}},
		{"mysql -px1secret;touch${IFS}/tmp/y", "x1secret", []string{";touch${IFS}/tmp/y"}},
		{`curl "http://u:x1secret$(touch${IFS}/tmp/m/z)@127.0.0.1:9/"`, "", []string{"$(touch${IFS}/tmp/m/z)"}},
		{"curl http://u:x1secret@127.0.0.1:9/;reboot", "x1secret", []string{";reboot"}},
		{"curl http://u:x1secret;reboot;@127.0.0.1:9/", "", []string{";reboot;"}},
		{`curl -H "Authorization: Bearer abcdefgh12345678;$(id)" http://127.0.0.1:9/`, "abcdefgh12345678", []string{"$(id)", "http://127.0.0.1:9/"}},
		{"echo Authorization: Bearer abcdefgh12345678;reboot", "abcdefgh12345678", []string{";reboot"}},
		{"echo Authorization: Bearer abcdefgh12345678|sh", "abcdefgh12345678", []string{"|sh"}},
		{"echo Bearer abcdefgh12345678&&reboot", "abcdefgh12345678", []string{"&&reboot"}},
		{"echo sk-ant-api03-AAAAAAAAAAAAAAAAAAAAAAAA1;rm -rf /srv/data", "AAAAAAAAAAAAAAAAAAAAAAAA1", []string{";rm -rf /srv/data"}},
		{"tool --password=x1secret;reboot", "x1secret", []string{";reboot"}},
		{"tool --password x1secret|sh", "x1secret", []string{"|sh"}},
		{"curl -u admin:x1secret;reboot", "x1secret", []string{";reboot"}},
		{"redis-cli -a x1secret;reboot", "x1secret", []string{";reboot"}},
		{"sshpass -p x1secret;reboot", "x1secret", []string{";reboot"}},
		{"sshpass -p x1secret$(reboot) ssh h", "x1secret", []string{"$(reboot)", "ssh h"}},
		{`PASSWORD=\"; rm -rf /srv; echo \"`, "", []string{"rm -rf /srv"}},
		{`echo "the PASSWORD="; rm -rf /srv; echo "y"`, "", []string{"rm -rf /srv"}},
		{"# \"\necho \"\nPASSWORD=\"; rm -rf /srv; echo \"", "", []string{"rm -rf /srv"}},
		{"cat <<E\n\"\nE\necho \"\nPASSWORD=\"; rm -rf /srv; echo \"", "", []string{"rm -rf /srv"}},
		{"echo '-----BEGIN PRIVATE KEY-----'; rm -rf /srv", "", []string{"rm -rf /srv"}},
		{"cat <<E\n-----BEGIN PRIVATE KEY-----\nMIIEowIBAAKCAQEA\nE;\nrm -rf /srv\n", "MIIEowIBAAKCAQEA", []string{"rm -rf /srv"}},
		{"echo -----BEGIN PRIVATE KEY-----; rm -rf /srv; echo -----END PRIVATE KEY-----", "", []string{"rm -rf /srv"}},
		{"PASSWORD= reboot", "", []string{"reboot"}},
		{"PGPASSWORD= shutdown now", "", []string{"shutdown now"}},
		{": -----BEGIN PRIVATE KEY-----\nComment: x; rm -rf /srv", "", []string{"rm -rf /srv"}},
		{": -----BEGIN PRIVATE KEY-----\nVersion: | reboot", "", []string{"| reboot"}},
		{": -----BEGIN PRIVATE KEY-----\n/tmp/evil.sh\nls", "", []string{"/tmp/evil.sh\nls"}},
		{"x=-----BEGIN PRIVATE KEY-----\nreboot", "", []string{"reboot"}},
		{"PASSWORD=\"x1secret`echo \\`id\\` \\`rm -rf /srv\\``\" ls", "x1secret", []string{"rm -rf /srv", "ls"}},
		{"kubectl apply -f - <<X\nkind: Secret\nstringData:\n  a: x1secret$(rm -rf /srv)\nX", "x1secret", []string{"$(rm -rf /srv)"}},
		// A quoted word is whole, and a header is.
		{`{"password": "p1&x;se|cret"}`, "p1&x;se|cret", nil},
		{`PASSWORD='p1&x;se|cret' psql`, "p1&x;se|cret", []string{"psql"}},
		{`curl -H "Cookie: a=1secret; b=2secret" http://x/`, "2secret", []string{"http://x/"}},
		{`psql "postgres://app:p&ss;w(1@db/x"`, "p&ss;w(1", []string{"@db/x"}},
		{`curl -u "admin:S3cr&t" http://x/`, "S3cr&t", []string{"http://x/"}},
		{`curl -H 'Cookie: sid=a|b1' http://x/`, "a|b1", []string{"http://x/"}},
		{"< Set-Cookie: sid=abc1; token=2secret; HttpOnly", "2secret", nil},
	} {
		got := r.RedactCommand(tc.text)
		if tc.gone != "" && strings.Contains(got, tc.gone) {
			t.Errorf("the secret stayed: %s -> %s", tc.text, got)
		}
		for _, k := range tc.kept {
			if !strings.Contains(got, k) {
				t.Errorf("%q is gone: %s -> %s", k, tc.text, got)
			}
		}
		if again := r.RedactCommand(got); again != got {
			t.Errorf("twice is another text: %s -> %s", got, again)
		}
	}
}

// TestNoCommandGoesWithASecret joins secrets and commands in any order: each command stays, and no secret does.
func TestNoCommandGoesWithASecret(t *testing.T) {
	secrets := []string{
		"PASSWORD=%s", "DB_PASSWORD=\"%s\"", "API_KEY='%s'", "tool --password=%s", "tool --token %s", "mysql -p%s", "curl -u admin:%s", "sshpass -p %s", "redis-cli -a %s",
		"curl http://u:%s@h/", "curl -H \"Authorization: Bearer %s\"", "curl -H 'Cookie: sid=%s'", "echo Cookie: sid=%s", "echo Bearer %s", "echo '{\"password\":\"%s\"}'", "export SECRET=%s",
	}
	separators := []string{";", "; ", "|", " | ", "&", " && ", "\n", " || ", "\n\n"}
	r, rnd := New(), rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		var text strings.Builder
		var kept, gone []string
		for n := range 1 + rnd.IntN(6) {
			if n > 0 {
				text.WriteString(separators[rnd.IntN(len(separators))])
			}
			switch rnd.IntN(3) {
			case 0:
				command := fmt.Sprintf("run%d /srv/x%d", rnd.IntN(1000), rnd.IntN(1000))
				kept = append(kept, command)
				text.WriteString(command)
			default:
				secret := fmt.Sprintf("Zq%dx%012dKw", rnd.IntN(10), rnd.IntN(1e12))
				shape := secrets[rnd.IntN(len(secrets))]
				gone = append(gone, secret)
				if rnd.IntN(3) == 0 && strings.IndexByte(shape, '\'') < 0 {
					command := fmt.Sprintf("$(sub%d)", rnd.IntN(1000))
					if !strings.Contains(shape, "http://u") { // which is no password then
						kept = append(kept, command)
						secret += command
					}
				}
				fmt.Fprintf(&text, shape, secret)
			}
		}
		got := r.RedactCommand(text.String())
		for _, k := range kept {
			if !strings.Contains(got, k) {
				t.Fatalf("%q is gone: %q -> %q", k, text.String(), got)
			}
		}
		for _, s := range gone {
			if strings.Contains(got, s) {
				t.Fatalf("%q stayed: %q -> %q", s, text.String(), got)
			}
		}
	}
}

// TestOnlyACommandCutsASecret: in what a command printed, a comment or an apostrophe shows no half of a secret.
func TestOnlyACommandCutsASecret(t *testing.T) {
	for _, text := range []string{
		"# database\nDB_PASSWORD=\"x&9;Kd(2wQ\"",
		"it doesn't answer\n{\"password\": \"x&9;Kd(2wQ\"}",
		"a << b\nDB_PASSWORD='x&9;Kd(2wQ'",
		"'postgres://app:x&9;Kd(2wQ@db/x",
	} {
		if got := New().Redact(text); strings.Contains(got, "9;Kd(2wQ") {
			t.Errorf("%q -> %q", text, got)
		}
	}
}

// TestAKeyIsWholeWhateverStandsBeforeItsLines: as programs print files, with its end and cut off.
func TestAKeyIsWholeWhateverStandsBeforeItsLines(t *testing.T) {
	body := []string{strings.Repeat("MIIEowIBAAKCAQEA", 4), strings.Repeat("b3BlbnNzaC1rZXk+", 4), strings.Repeat("0/yZ", 16)}
	for _, form := range []string{
		"%s\n", "     2\t%s\n", "12:%s\n", "app  | %s\n", "2026-07-01T10:00:00Z %s\r\n", "> %s\n", "    \"%s\\n\" +\n", "id_rsa-%s\n", "id_rsa: %s\n", "%s\\n",
	} {
		for _, end := range []string{"", "-----END RSA PRIVATE KEY-----"} {
			text := fmt.Sprintf(form, "-----BEGIN RSA PRIVATE KEY-----")
			for _, line := range body {
				text += fmt.Sprintf(form, line)
			}
			if end != "" {
				text += fmt.Sprintf(form, "Zm9v") + fmt.Sprintf(form, end)
			}
			text += "then this\n"
			got, s := New().Redact(text), New().Stream()
			streamed := s.Write(text) + s.Flush()
			for _, line := range append(body, "Zm9v") {
				if strings.Contains(got, line) || strings.Contains(streamed, line) {
					t.Errorf("%q: %q stayed in %q", form, line, got)
				}
			}
			if !strings.Contains(got, "then this") {
				t.Errorf("%q: what follows is gone: %q", form, got)
			}
		}
	}
}

// TestABeginningWithoutAKeyHidesNothing: not in a stream either.
func TestABeginningWithoutAKeyHidesNothing(t *testing.T) {
	text := "-----BEGIN PRIVATE KEY-----: no such key\n" + strings.Repeat("a line of a log\n", 8000) + "the end\n"
	r := New()
	s := r.Stream()
	var got strings.Builder
	for line := range strings.Lines(text) {
		got.WriteString(s.Write(line))
	}
	if shown := got.String(); !strings.Contains(shown, "a line of a log") {
		t.Errorf("the stream holds back %d bytes", len(text)-len(shown))
	}
	got.WriteString(s.Flush())
	if want := r.Redact(text); got.String() != want || !strings.HasSuffix(want, "the end\n") {
		t.Errorf("the stream gave %d bytes, the whole text %d", got.Len(), len(want))
	}
}
