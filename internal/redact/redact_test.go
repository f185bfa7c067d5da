package redact

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestSecretsGo(t *testing.T) {
	own := `hunter2/"very&secret`
	b64 := base64.StdEncoding.EncodeToString
	quoted, _ := json.Marshal(own)
	r := New(own, "short")
	for name, tc := range map[string]struct{ text, secret string }{
		"an exact value":              {"x " + own + " y", own},
		"its base64":                  {"x " + b64([]byte(own)), b64([]byte(own))},
		"its base64 within another":   {b64([]byte("user:" + own)), b64([]byte(own))[4:20]},
		"its base64 one further":      {b64([]byte("user1:" + own + "!")), "dmVyeSZzZWNy"},
		"its URL form":                {"?q=" + url.QueryEscape(own), url.QueryEscape(own)},
		"its path form":               {"/x/" + url.PathEscape(own), url.PathEscape(own)},
		"its JSON form":               {string(quoted), string(quoted)},
		"its hex form":                {fmt.Sprintf("%x", own), fmt.Sprintf("%x", own)},
		"an AWS key id":               {"key AKIAIOSFODNN7EXAMPLE in the log", "AKIAIOSFODNN7EXAMPLE"},
		"a GitHub token":              {"ghp_" + strings.Repeat("a1B2", 9), "ghp_" + strings.Repeat("a1B2", 9)},
		"a GitHub token in a URL":     {"https://ghp_" + strings.Repeat("a1B2", 9) + "@github.com/x", "a1B2a1B2"},
		"a GitLab token":              {"glpat-abcdefghij1234567890", "abcdefghij"},
		"a Slack token":               {"xoxb-123456789012-abcdef", "xoxb-123456789012-abcdef"},
		"a Slack app token":           {"xapp-1-A0123-4567-abcdef", "A0123"},
		"a Slack webhook":             {"https://hooks.slack.com/services/T00000000/B00000000/abcdefghijklmnop", "abcdefghijklmnop"},
		"a Discord token":             {"MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.ZnCjm1XVW7vRze4b7Cq4se7kKWs", "ZnCjm1XVW7vRze4b7Cq4se7kKWs"},
		"an OpenAI key":               {"sk-proj-abc123def456ghi789jkl", "abc123def456"},
		"a Vault token":               {"hvs.CAESIJ1234567890abcdefgh", "CAESIJ"},
		"a JWT":                       {"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl", "c2lnbmF0dXJl"},
		"a PEM key":                   {"-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----", "MIIEow"},
		"an OpenSSH key":              {"-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz\n-----END OPENSSH PRIVATE KEY-----", "b3BlbnNz"},
		"a cut PEM key":               {"-----BEGIN PRIVATE KEY-----\nMIIEow", "MIIEow"},
		"a private_key in JSON":       {`"private_key": "-----BEGIN PRIVATE KEY-----\nMIIEow\n-----END PRIVATE KEY-----\n"`, "MIIEow"},
		"a private_key in JSON, bare": {`{"private_key":"c0ffee99c0ffee"}`, "c0ffee99"},
		"a password in a URL":         {"postgres://app:s3cr3tpw@db/x", "s3cr3tpw"},
		"one with an @ in it":         {"postgres://app:p@ss@db/x", "p@ss"},
		"one without a user":          {"redis://:s3cr3tpw@db:6379", "s3cr3tpw"},
		"a bearer header":             {"Authorization: Bearer abcdef123456", "abcdef123456"},
		"a basic header":              {"> authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"},
		"a header in JSON":            {`{"Authorization":"token abcdef123456"}`, "abcdef123456"},
		"a bearer token alone":        {"using bearer abcdefghij1234567890", "abcdefghij1234567890"},
		"a cookie":                    {"Cookie: session=abcdef", "session=abcdef"},
		"a set cookie":                {"< set-cookie: sid=abcdef; Path=/", "abcdef"},
		"an API key header":           {"X-Api-Key: abcdef99", "abcdef99"},
		"a password in a file":        {"db_password = hunter2x", "hunter2x"},
		"a password in YAML":          {"  password: hunter2", "hunter2"},
		"a quoted one with blanks":    {`password: "correct horse battery"`, "horse"},
		"one in single quotes":        {"PASSWORD='correct horse'", "horse"},
		"one in escaped JSON":         {`{\"password\":\"hunter2x\"}`, "hunter2x"},
		"DB_PASS":                     {"DB_PASS=hunter2", "hunter2"},
		"a JSON secret":               {`{"client_secret": "abcdef99"}`, "abcdef99"},
		"camel case":                  {`clientSecret: "abcdef99"`, "abcdef99"},
		"a query parameter":           {"GET /x?token=abcdef99&y=1", "abcdef99"},
		"a password on the line":      {"mysql --password=hunter2x -u root", "hunter2x"},
		"mysql -p":                    {"mysql -u root -phunter2x db", "hunter2x"},
		"a password after its flag":   {"tool --db-password hunter2x", "hunter2x"},
		"a token after its flag":      {"tool --token abc123def", "abc123def"},
		"curl -u":                     {"curl -s -u admin:hunter2x http://x", "hunter2x"},
		"docker login":                {"docker login -u bob -p hunter2x reg", "hunter2x"},
		"sshpass":                     {"sshpass -p hunter2x ssh web1", "hunter2x"},
		"redis-cli -a":                {"redis-cli -h x -a hunter2x info", "hunter2x"},
		"a .netrc":                    {"machine x login bob password hunter2x", "hunter2x"},
		"a .netrc of many lines":      {"machine x\n  login bob\n  password hunter2x\n", "hunter2x"},
		"an environment assignment":   {"AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMIK7MDENG", "wJalrXUtnFEMIK7MDENG"},
		"PGPASSWORD":                  {"PGPASSWORD=hunter2 psql", "hunter2"},
		"SECRET_KEY_BASE":             {"SECRET_KEY_BASE=0123456789abcdef", "0123456789abcdef"},
	} {
		got := r.Redact(tc.text)
		if strings.Contains(got, tc.secret) || !strings.Contains(got, "[redacted:") {
			t.Errorf("%s: %q", name, got)
		}
		if again := r.Redact(got); again != got {
			t.Errorf("%s: %q, then %q", name, got, again)
		}
	}
}

func TestOrdinaryTextStays(t *testing.T) {
	r := New()
	for _, s := range []string{
		"", "ls -la", "plain words about a password and a secret token",
		"Jan  2 03:04:05 web-1 sshd[42]: Failed password for invalid user admin from 10.0.0.1 port 22",
		"sudo: pam_unix(sudo:auth): authentication failure; logname= uid=1000 tty=/dev/pts/0",
		"GET /token/refresh HTTP/1.1 200 1234", "https://example.com:8443/path?x=1", "https://example.com/a@b", "git@github.com:acme/app.git", "ssh://git@github.com/acme/app",
		"tokens: 4123 in, 99 out", "max_tokens=4096", "token_count: 12", "completion_tokens: 1234567",
		"password: ********", "secret: <none>", "the password was changed", "Password: ", "Enter password:", "password=", "password: incorrect", "invalid password: user bob", "password authentication failed",
		"PasswordAuthentication yes", "passwordAuthentication: true", "password_file: /etc/app/pw", "PASSWORD_FILE=/run/secrets/db", "password: $DB_PASSWORD", "password: ${DB_PASSWORD}", "password: {{ .Values.pw }}",
		"secretName: web-tls", "secretKeyRef:", "imagePullSecrets:", "secret/web created", "secrets: 3", "tokenExpirationSeconds: 3600", "kubectl get secret web -n prod",
		"sk-learn", "task-scheduler-runs-every-night-at-two", "commit 9fceb02d0ae598e95dc970b74767f19372d61af8", "sha256:4b825dc642cb6eb9a060e54bf8d69288fbee4904d2a5a4d6b5b4f5c0a1b2c3d4",
		"total 12K", "keys = [1, 2, 3]", "key: value", "sort key: name", "primary key: id", "token: true", "unexpected token: }", "syntax error near unexpected token `fi'", "CSRF token: missing",
		"debug req=000001 cache lookup took 0ms, payload not shown", "compass=north", "bypass: enabled", "Bearer authentication required", "Authorization: denied for bob", "authorization failed: no rule",
		"cookie: none", "550e8400-e29b-41d4-a716-446655440000", "arn:aws:iam::123456789012:role/web", "MIIB is how a certificate begins",
		"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----", "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",
		"mysql -u root -p", "mysql -h db -P 3306 -p -e 'show tables'", "docker ps -p 80", "cp -p a b && curl -u http://x", "mkdir -p /srv/app; mysql --port 1 --protocol tcp",
		"tool --token-file /etc/x --password-stdin", "--password --user x", "level=info msg=\"order accepted\" id=4711 took=12ms",
	} {
		if got := r.Redact(s); got != s {
			t.Errorf("%q became %q", s, got)
		}
	}
}

func TestEqualSecretsLookEqual(t *testing.T) {
	r := New("first-secret", "other-secret")
	got := r.Redact("first-secret other-secret first-secret " + base64.StdEncoding.EncodeToString([]byte("first-secret")))
	m := regexp.MustCompile(`#[0-9a-f]{4}\]`).FindAllString(got, -1)
	if len(m) != 4 || m[0] != m[2] || m[0] != m[3] {
		t.Errorf("%q", got)
	}
	if want := regexp.MustCompile(`^\[redacted:secret#[0-9a-f]{4}\]$`); !want.MatchString(r.Redact("first-secret")) {
		t.Errorf("%q", r.Redact("first-secret"))
	}
	if with := r.With("third-secret"); with.Redact("first-secret") != r.Redact("first-secret") || with.Redact("third-secret") == "third-secret" {
		t.Error("With forgets something")
	}
	if r.Redact("third-secret") != "third-secret" {
		t.Error("With changes the one it was made from")
	}
}

func TestLongRunsOfNamesTakeLinearTime(t *testing.T) {
	r := New("hunter2hunter2")
	for _, p := range []string{"token=", "password: ", "://a:", "Bearer ", "-----BEGIN PRIVATE KEY-----", "eyJ", "cookie: ", "mysql -p", "\"", "AKIA", "....", " -a ", "sk-", "secret:", "token=\"a", "redis-cli -a x"} {
		text := strings.Repeat(p, 1<<16/len(p))
		if r.Redact(text) == "" {
			t.Errorf("%q: nothing is left", p)
		}
	}
}

var parts = []string{
	"hunter2hunter2", " ", "password=", "token: ", "abcdefgh", "abc1def2", "Bearer ", "Authorization: ", "://a:", "b@", "\n", "\"", "'", "AKIAIOSFODNN7EXAMPLE", "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----",
	"\\", "Cookie: ", "a=b", "mysql -p", "--token ", "eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl", "[redacted:x#1234]", "#", "]", "}", ";", "&", "secret", "key", "_", "x",
	"kind: Secret\n", "data:\n", "  a: aHVudGVyMg==\n", "apiVersion: v1\n", "- ", "  ", `{"kind":"Secret","data":{"a":"aHVudGVyMg=="`, "---\n", "heroku_key=", "550e8400-e29b-41d4-a716-446655440000", "deploy_key: ", "a1B2c3D4e5F6g7H8i9J0", "twitter: ",
}

// samples are texts with a secret of a rule of gitleaks.
func samples(n uint64) []string {
	var out []string
	for _, p := range gitleaksSamples {
		out = append(out, strings.NewReplacer("«", "", "»", "").Replace(sample(p, n)))
	}
	slices.Sort(out)
	return out
}

func TestRedactingTwiceChangesNothingMore(t *testing.T) {
	r := New("hunter2hunter2", "two\nlines of it")
	parts := append(samples(1), slices.Repeat(parts, 4)...)
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOf(rapid.SampledFrom(parts)).Draw(t, "parts"), "")
		once := r.Redact(text)
		if twice := r.Redact(once); twice != once {
			t.Fatalf("%q: %q, then %q", text, once, twice)
		}
		if strings.Contains(once, "hunter2hunter2") {
			t.Fatalf("%q: %q", text, once)
		}
	})
}

func TestAStreamGivesWhatRedactGives(t *testing.T) {
	r := New("hunter2hunter2", "two\nlines of it")
	lines := []string{"plain", "x hunter2hunter2 y", "password=abcdefgh", "-----BEGIN PRIVATE KEY-----", "MIIEow", "-----END PRIVATE KEY-----", "see two", "lines of it", "AKIAIOSFODNN7EXAMPLE", "", "Authorization: Bearer abc123abc123", strings.Repeat("long ", 3000) + "hunter2hunter2"}
	lines = append(lines, samples(2)...)
	for _, text := range kubeTexts {
		lines = append(lines, text, text)
	}
	long := sample("eyJ{w20}.eyJ{w12000}.{w43}", 3) // a token longer than what is held back of a line
	lines = append(lines, strings.Repeat("long ", 3000)+long, "x "+long+" "+strings.Repeat("y ", 9000), strings.Repeat("word", 2000)+long)
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOf(rapid.SampledFrom(lines)).Draw(t, "lines"), "\n")
		s := r.Stream()
		var got strings.Builder
		for rest := text; rest != ""; {
			n := min(len(rest), rapid.SampledFrom([]int{1, 2, 7, 30, 5000}).Draw(t, "n"))
			if len(rest) > 20000 {
				n = min(len(rest), 5000)
			}
			got.WriteString(s.Write(rest[:n]))
			rest = rest[n:]
		}
		got.WriteString(s.Flush())
		// The tag of a key of more than 64 KiB is that of its beginning.
		tag := regexp.MustCompile(`private-key#[0-9a-f]+`)
		if got, want := tag.ReplaceAllString(got.String(), "private-key"), tag.ReplaceAllString(r.Redact(text), "private-key"); got != want {
			t.Fatalf("got  %.3000q\nwant %.3000q", got, want)
		}
	})
}

func TestAStreamHoldsNoMoreThanItMustAndShowsNoPieceOfAKey(t *testing.T) {
	s := New().Stream()
	if got := s.Write("a whole line\nand a piece"); got != "a whole line\n" {
		t.Errorf("%q", got)
	}
	if got := s.Flush(); got != "and a piece" {
		t.Errorf("%q", got)
	}
	var out strings.Builder
	out.WriteString(s.Write("before\n-----BEGIN PRIVATE KEY-----\n"))
	for range 4000 {
		out.WriteString(s.Write("MIIEowMIIEowMIIEowMIIEowMIIEow\n"))
	}
	out.WriteString(s.Write("-----END PRIVATE KEY-----\nafter\n"))
	out.WriteString(s.Flush())
	if got := out.String(); strings.Contains(got, "MIIE") || !strings.HasPrefix(got, "before\n[redacted:private-key#") || !strings.HasSuffix(got, "\nafter\n") {
		t.Errorf("%.200q", got)
	}
	out.Reset()
	for range 100 {
		out.WriteString(s.Write(strings.Repeat("no line break here, ", 50)))
	}
	if out.Len() < 80_000 {
		t.Errorf("only %d bytes of a long line came out", out.Len())
	}
}

func TestAPreviewShowsNoPieceOfASecret(t *testing.T) {
	key := "-----BEGIN PRIVATE KEY-----\n" + strings.Repeat("MIIEowMIIEowMIIEow\n", 60) + "-----END PRIVATE KEY-----"
	r := New("hunter2hunter2")
	for _, text := range []string{
		"I found " + sample("gh"+"p_{w36}", 1) + " there", "the password: " + sample("{w20}", 2) + ", it says", `password: "` + sample("{w9} {w9} {w9}", 3) + `" and`, "x hunter2hunter2 y",
		"before\n" + key + "\nafter", kubeTexts["as kubectl prints it"], kubeTexts["a manifest"], "Cookie: a=" + sample("{w30}", 4) + "; b=c",
	} {
		s := r.Stream()
		secrets := regexp.MustCompile(`[A-Za-z0-9_]{8,}`).FindAllString(text, -1)
		whole := r.Redact(text)
		given := ""
		for i := range len(text) {
			given += s.Write(text[i : i+1])
			shown := given + s.Preview()
			for _, secret := range secrets {
				if !strings.Contains(whole, secret) && strings.Contains(shown, secret[:6]) && !strings.Contains(whole, secret[:6]) {
					t.Fatalf("%q shows %q of %q", shown, secret[:6], secret)
				}
			}
			if last := strings.LastIndexAny(text[:i+1], " \n"); last > 0 && shown == "" && !strings.ContainsAny(text[:last], `:"-`) {
				t.Errorf("%q shows nothing", text[:i+1])
			}
		}
	}
	s := r.Stream()
	s.Write("an unfinished line of wor")
	if got := s.Preview(); got != "an unfinished line of " {
		t.Errorf("%q", got)
	}
	if got := s.Write("ds\n"); got != "an unfinished line of words\n" {
		t.Errorf("a preview changes what is given: %q", got)
	}
}

func TestASecretNeverPrintsItself(t *testing.T) {
	s := Secret("hunter2")
	b, err := json.Marshal(map[string]any{"s": s, "list": []Secret{s}})
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "secret", s, "in", struct{ S Secret }{s})

	printed := fmt.Sprintf("%s %v %+v %#v %q %x %d %t %c %v", s, s, s, s, s, s, s, s, s, struct{ S Secret }{s})
	for _, got := range []string{printed, string(b), log.String(), fmt.Sprint(s), fmt.Sprint([]Secret{s})} {
		if strings.Contains(got, "hunter2") || strings.Contains(got, "68756e") {
			t.Error(got)
		}
	}
	if s.Reveal() != "hunter2" || s.String() != "***" || Secret("").String() != "" {
		t.Error("a secret lost its value, or hides that it is not set")
	}
	var in Secret
	if err := in.UnmarshalText([]byte("x")); err != nil || in.Reveal() != "x" {
		t.Error("a secret can't be read")
	}
}

func FuzzRedact(f *testing.F) {
	for _, p := range parts {
		f.Add(p + "abc123")
	}
	r := New("hunter2hunter2")
	f.Fuzz(func(t *testing.T, text string) {
		once := r.Redact(text)
		if strings.Contains(once, "hunter2hunter2") {
			t.Fatalf("%q: %q", text, once)
		}
		s := r.Stream()
		var got strings.Builder
		for i := range len(text) {
			got.WriteString(s.Write(text[i : i+1]))
		}
		got.WriteString(s.Flush())
		if strings.Contains(got.String(), "hunter2hunter2") {
			t.Fatalf("%q: streamed %q", text, got.String())
		}
	})
}

func BenchmarkRedact50KB(b *testing.B) {
	values := make([]string, 20)
	for i := range values {
		values[i] = fmt.Sprintf("secret-value-number-%d", i)
	}
	r := New(values...)
	line := "2026-01-02T03:04:05Z web-1 checkout[42]: level=info msg=\"order accepted\" id=4711 took=12ms\n"
	odd := "2026-01-02T03:04:05Z web-1 auth[42]: token=abc123def456 password: hunter2 url=postgres://a:b1c2d3@db/x key=1\n"
	busy := "2026-01-02T03:04:05Z web-1 auth[42]: user=bob key=1 api=v1 request_id=550e8400-e29b-41d4-a716-446655440000 path=/api/v1/token commit=9fceb02d0ae598e95dc970b74767f19372d61af8\n"
	for name, text := range map[string]string{
		"busy":    strings.Repeat(busy, 50<<10/len(busy)), // many words of rules, no secret
		"plain":   strings.Repeat(line, 50<<10/len(line)),
		"secrets": strings.Repeat(line+odd, 50<<10/(len(line)+len(odd))),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				r.Redact(text)
			}
		})
	}
}

// TestARedactorLearns: a token that is renewed while the bot runs is taken out as the first one was.
func TestARedactorLearns(t *testing.T) {
	r := New("first-token-value")
	redacts := r.Redact // as others keep it
	r.Learn("second-token-value")
	for _, v := range []string{"first-token-value", "second-token-value"} {
		if got := redacts("it is " + v + "."); strings.Contains(got, v) {
			t.Errorf("%s", got)
		}
		s := r.Stream()
		if got := s.Write("it is "+v+".") + s.Flush(); strings.Contains(got, v) {
			t.Errorf("%s", got)
		}
	}
	many := make([]string, 2*maxLearned)
	for i := range many {
		many[i] = fmt.Sprintf("token-value-%06d", i)
	}
	r.Learn(many...)
	if got := redacts("first-token-value, " + fmt.Sprintf("token-value-%06d", 2*maxLearned-1)); strings.Contains(got, "token-value") {
		t.Errorf("%s", got)
	}
}
