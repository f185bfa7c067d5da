package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"countersign/client"
	"countersign/client/account"
)

// fakeBot answers calls with what decide makes of them.
type fakeBot struct {
	*httptest.Server
	asked chan client.Request
}

func newFakeBot(t *testing.T, decide func(client.Request) client.Result) *fakeBot {
	t.Helper()
	b := &fakeBot{asked: make(chan client.Request, 100)}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in client.Request
		_ = json.NewDecoder(r.Body).Decode(&in)
		switch {
		case strings.HasSuffix(r.URL.Path, "/withdraw"):
			w.WriteHeader(http.StatusNoContent)
			return
		case r.Method == http.MethodPost:
			b.asked <- in
			_ = json.NewEncoder(w).Encode(decide(in))
		default: // it waits for people
			<-r.Context().Done()
		}
	}))
	t.Cleanup(b.Close)
	return b
}

// allowed is the bot's answer that allows what is asked.
func allowed(in client.Request) client.Result {
	var args struct{ Command, Change string }
	_ = json.Unmarshal(in.Args, &args)
	return client.Result{ID: "1", State: client.Done, Allowed: true, Command: args.Command, Digest: digest(args.Command + args.Change)}
}

func waits(client.Request) client.Result {
	return client.Result{ID: "1", State: client.Waiting, Request: "r", Thread: "t"}
}

// installed is a program whose hook asks a bot.
func installed(t *testing.T, p Program, url string) Program {
	t.Helper()
	p.Account = filepath.Join(t.TempDir(), "account.json")
	if err := (account.Account{URL: url, Token: "cst_1"}).Write(p.Account); err != nil {
		t.Fatal(err)
	}
	return p
}

// says is an event of a program about a command.
func says(p Program, command any, more map[string]any) string {
	in := map[string]any{
		"session_id": "s", "cwd": "/tmp", "hook_event_name": p.Events[0], "tool_name": p.Shells[0], "permission_mode": "bypassPermissions",
		"tool_input": map[string]any{"command": command},
	}
	maps.Copy(in, more)
	raw, _ := json.Marshal(in)
	return string(raw)
}

// answer is what a program reads: allow, deny or ask, or "", and the whole of it.
func (h Program) answered(t *testing.T, in io.Reader) (decision, whole string) {
	t.Helper()
	var out bytes.Buffer
	if err := h.Run(t.Context(), in, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"allow", "deny", "ask"} {
		if strings.Contains(out.String(), `:"`+d+`"`) {
			return d, out.String()
		}
	}
	return "", out.String()
}

func TestEveryQuestionOfAProgramsKindIsAnswered(t *testing.T) {
	b := newFakeBot(t, allowed)
	for _, p := range Programs {
		p = installed(t, p, b.URL)
		for what, in := range map[string]string{
			"nothing": "", "no JSON": "{", "a list": "[1]", "two objects": says(p, "ls", nil) + "{}", "bytes that are no text": "{\"hook_event_name\":\"\xff\"}",
			"an event twice":    strings.Replace(says(p, "touch x", nil), "{", `{"hook_event_name":"PostToolUse",`, 1),
			"a command twice":   strings.Replace(says(p, "touch x", nil), `"command"`, `"command":"ls","command"`, 1),
			"nested too deep":   says(p, "ls", map[string]any{"x": json.RawMessage(strings.Repeat("[", 500) + strings.Repeat("]", 500))}),
			"no event":          says(p, "ls", map[string]any{"hook_event_name": 1}),
			"no tool":           says(p, "ls", map[string]any{"tool_name": nil}),
			"no directory":      says(p, "ls", map[string]any{"cwd": ""}),
			"half a directory":  says(p, "ls", map[string]any{"cwd": "src"}),
			"no input":          says(p, "ls", map[string]any{"tool_input": "ls"}),
			"no command":        says(p, " ", nil),
			"a list of words":   says(p, []string{"ls"}, nil),
			"140 KB":            says(p, "ls "+strings.Repeat("x", 140<<10), nil),
			"more than 1 MB":    says(p, "ls "+strings.Repeat("x", 3<<20), nil),
			"one byte too much": says(p, strings.Repeat("x", maxCommand+1), nil),
		} {
			if d, whole := p.answered(t, strings.NewReader(in)); d != "deny" {
				t.Errorf("%s, %s: %q", p.ID, what, whole)
			}
		}
		for _, odd := range []string{" touch x", "touch x ", "touch x \\", "rm a\\ ", "\ttouch x\n\n", strings.Repeat("x", maxCommand)} {
			if d, whole := p.answered(t, strings.NewReader(says(p, odd, nil))); d != "allow" {
				t.Errorf("%s, %.20q: %.300q", p.ID, odd, whole)
				continue
			}
			var args struct{ Command, Shell string }
			if err := json.Unmarshal((<-b.asked).Args, &args); err != nil || args.Command != odd {
				t.Errorf("%s: for %.20q it asked about %.20q", p.ID, odd, args.Command)
			} else if strings.Contains(odd, `\`) && args.Shell != "" {
				t.Errorf("%s: %q may be proven", p.ID, odd)
			}
		}
		for what, in := range map[string]string{
			"another tool": says(p, "ls", map[string]any{"tool_name": "WebFetch"}), "another event": says(p, "ls", map[string]any{"hook_event_name": "PostToolUse"}),
		} {
			if _, whole := p.answered(t, strings.NewReader(in)); whole != "" {
				t.Errorf("%s, %s: %q", p.ID, what, whole)
			}
		}
	}
}

// Where a program's own person would be asked, that is the answer; anywhere else it's no.
func TestWithoutABotOnlyAPromptingModeAsks(t *testing.T) {
	t.Parallel()
	away := newFakeBot(t, allowed)
	away.Close()
	status := func(code int) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
		t.Cleanup(s.Close)
		return s.URL
	}
	for what, tc := range map[string]struct {
		url    string
		reason string
		own    bool
	}{
		"away": {away.URL, "the bot at " + away.URL + " doesn't answer", true}, "broken": {status(500), "HTTP 500", true}, "ended token": {status(401), "hook install", true},
		"plain HTTP to another machine": {"http://203.0.113.1:80", "isn't encrypted", true}, "no address": {"", "no address", true},
		"refused": {status(400), "denied this", false}, "too many questions": {status(429), "HTTP 429", false},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			for _, p := range Programs {
				p = installed(t, p, tc.url)
				if what == "away" || what == "broken" || what == "too many questions" {
					p.patience = 100 * time.Millisecond
				}
				for _, mode := range []any{"default", "acceptEdits", "plan", "auto", "dontAsk", "bypassPermissions", "new", "", 1, nil} {
					want := "deny"
					if p.ID == "claude-code" && (mode == "default" || mode == "acceptEdits") && tc.own {
						want = "ask"
					}
					if d, whole := p.answered(t, strings.NewReader(says(p, "touch x", map[string]any{"permission_mode": mode}))); d != want || !strings.Contains(whole, tc.reason) || strings.Contains(whole, "denied this") != (want == "deny") {
						t.Errorf("%s in %v: %s", p.ID, mode, whole)
					}
				}
			}
		})
	}
	t.Run("not signed in", func(t *testing.T) {
		p := Programs[0]
		p.Account = filepath.Join(t.TempDir(), "none")
		if d, whole := p.answered(t, strings.NewReader(says(p, "ls", nil))); d != "deny" || !strings.Contains(whole, "hook install claude-code") {
			t.Error(whole)
		}
	})
}

// Who can't be asked is said with the cause.
func TestTheCauseIsSaidWhyNobodyCanBeAsked(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	p := installed(t, Programs[0], s.URL)
	p.patience = 2 * time.Second
	if _, whole := p.answered(t, strings.NewReader(says(p, "ls", nil))); !strings.Contains(whole, "certificate") {
		t.Error(whole)
	}
}

// A link into itself is a file that is not there.
func TestALinkIntoItselfEnds(t *testing.T) {
	b := newFakeBot(t, allowed)
	dir := t.TempDir()
	if err := os.Symlink("a/b", filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	p := installed(t, Programs[0], b.URL)
	if d, whole := p.answered(t, strings.NewReader(editIn(dir, "Write", map[string]any{"file_path": filepath.Join(dir, "a"), "content": "x"}))); d != "deny" {
		t.Error(whole)
	}
}

// What is installed asks its own bot, whatever the environment says.
func TestTheEnvironmentChangesNothingAboutWhoIsAsked(t *testing.T) {
	b, other := newFakeBot(t, allowed), newFakeBot(t, func(client.Request) client.Result { panic("asked another one") })
	for name, value := range map[string]string{
		"COUNTERSIGN_URL": other.URL, "COUNTERSIGN_TOKEN": "cst_2", "HOME": t.TempDir(), "XDG_CONFIG_HOME": t.TempDir(), "http_proxy": other.URL, "https_proxy": other.URL,
		"HTTP_PROXY": other.URL, "all_proxy": other.URL, "SSL_CERT_FILE": "/dev/null", "SSL_CERT_DIR": t.TempDir(),
	} {
		t.Setenv(name, value)
	}
	p := installed(t, Programs[0], b.URL)
	if d, whole := p.answered(t, strings.NewReader(says(p, "ls", nil))); d != "allow" || len(b.asked) != 1 || len(other.asked) != 0 {
		t.Error(whole)
	}
	for _, name := range []string{"SSL_CERT_FILE", "SSL_CERT_DIR"} {
		if _, there := os.LookupEnv(name); there {
			t.Errorf("%s still counts", name)
		}
	}
}

// The program's own limit is never reached: the answer comes before, and the card is withdrawn.
func TestTheAnswerComesBeforeTheProgramsLimit(t *testing.T) {
	t.Parallel()
	b := newFakeBot(t, waits)
	never, w := io.Pipe()
	t.Cleanup(func() { _ = w.Close() })
	for what, in := range map[string]func(Program) io.Reader{
		"nobody decides": func(p Program) io.Reader {
			return strings.NewReader(says(p, "touch x", map[string]any{"permission_mode": "default"}))
		},
		"nothing is said": func(Program) io.Reader { return never },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			for _, p := range Programs {
				t.Run(p.ID, func(t *testing.T) {
					t.Parallel()
					p := installed(t, p, b.URL)
					p.Limit = 2 * time.Second
					begun := time.Now()
					if d, whole := p.answered(t, in(p)); d != "deny" || !strings.Contains(whole, "in time") || time.Since(begun) > p.Limit {
						t.Errorf("after %s: %s", time.Since(begun), whole)
					}
				})
			}
		})
	}
}

func TestAHookThatIsEndedDenies(t *testing.T) {
	b := newFakeBot(t, waits)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-b.asked; cancel() }()
	var out bytes.Buffer
	p := installed(t, Programs[0], b.URL)
	if err := p.Run(ctx, strings.NewReader(says(p, "touch x", nil)), &out, io.Discard); err != nil || !strings.Contains(out.String(), `"deny"`) {
		t.Error(out.String(), err)
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("nobody reads") }

func TestAnAnswerThatCantBeWrittenIsAnError(t *testing.T) {
	b := newFakeBot(t, allowed)
	p := installed(t, Programs[0], b.URL)
	if err := p.Run(t.Context(), strings.NewReader(says(p, "ls", nil)), brokenPipe{}, io.Discard); err == nil {
		t.Error("it is none")
	}
}

type panics struct{}

func (panics) Read([]byte) (int, error) { panic("a fault") }

func TestAFaultIsADenial(t *testing.T) {
	for _, p := range Programs {
		if d, whole := p.answered(t, panics{}); d != "deny" {
			t.Errorf("%s: %s", p.ID, whole)
		}
	}
}

// editIn is an event about a file, and patchIn one about a patch.
func editIn(dir, tool string, in map[string]any) string {
	return says(Programs[0], "", map[string]any{"cwd": dir, "tool_name": tool, "tool_input": in})
}

func TestEditsThatCantBeShownAreDenied(t *testing.T) {
	b := newFakeBot(t, allowed)
	p := installed(t, Programs[0], b.URL)
	dir, outside := t.TempDir(), t.TempDir()
	file := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	text, binary := file("a.txt", "one\n"), file("b.bin", "\x00\xff")
	big := file("big", strings.Repeat("x\n", maxNamedSize/2+1))
	pipe, link, sub := filepath.Join(dir, "pipe"), filepath.Join(dir, "link"), filepath.Join(dir, "sub")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.Symlink(filepath.Join(outside, "not-there"), link), os.Symlink(outside, sub), os.Mkdir(filepath.Join(dir, ".git"), 0o700)); err != nil {
		t.Fatal(err)
	}
	type m = map[string]any
	for what, in := range map[string]string{
		"no file": editIn(dir, "Edit", m{"old_string": "a", "new_string": "b"}), "another program's spelling too": editIn(dir, "Write", m{"file_path": text, "filePath": "/etc/passwd", "content": "x"}),
		"text that isn't there": editIn(dir, "Edit", m{"file_path": text, "old_string": "two", "new_string": "b"}), "no text": editIn(dir, "Edit", m{"file_path": text}),
		"a binary file": editIn(dir, "Edit", m{"file_path": binary, "old_string": "\x00", "new_string": "b"}), "binary content": editIn(dir, "Write", m{"file_path": text, "content": "\x00"}),
		"edits that are no list": editIn(dir, "MultiEdit", m{"file_path": text, "edits": "one"}), "no edits": editIn(dir, "MultiEdit", m{"file_path": text}),
		"no content": editIn(dir, "Write", m{"file_path": text}), "too long a change": editIn(dir, "Write", m{"file_path": text, "content": strings.Repeat("y\n", maxEdit)}),
		"too large a file": editIn(dir, "Edit", m{"file_path": big, "old_string": "x\nx", "new_string": "b"}),
		"a pipe":           editIn(dir, "Write", m{"file_path": pipe, "content": "b"}), "a device": editIn(dir, "Edit", m{"file_path": "/dev/zero", "old_string": "a", "new_string": "b"}),
		"a directory":                           editIn(dir, "Write", m{"file_path": dir, "content": "b"}),
		"a link that leads out of the checkout": editIn(dir, "Write", m{"file_path": link, "content": "b"}),
		"a directory that does":                 editIn(dir, "Write", m{"file_path": filepath.Join(sub, "new"), "content": "b"}),
		"a way round":                           editIn(dir, "Write", m{"file_path": dir + "/sub/../a.txt", "content": "b"}),
		"a patch of it":                         editIn(dir, "apply_patch", m{"command": "*** Begin Patch\n*** Update File: a.txt\n@@\n-one\n+two\n*** Add File: sub/x\n+x\n*** End Patch\n"}),
	} {
		h := p
		h.Edits = append(slices.Clone(p.Edits), "apply_patch")
		if d, whole := h.answered(t, strings.NewReader(in)); d != "deny" || len(b.asked) > 0 {
			t.Errorf("%s: %s", what, whole)
		}
	}
	// The tool says what of its input counts.
	if d, whole := p.answered(t, strings.NewReader(editIn(dir, "Edit", m{"file_path": text, "old_string": "one", "new_string": "two", "content": "something else"}))); d != "allow" {
		t.Error(whole)
	}
	if q := <-b.asked; !strings.Contains(string(q.Args), `+two`) || strings.Contains(string(q.Args), "something else") {
		t.Errorf("%s", q.Args)
	}
}

// All files of a patch are named, with what is there.
func TestAPatchNamesAllItsFiles(t *testing.T) {
	b := newFakeBot(t, allowed)
	p := installed(t, Programs[1], b.URL)
	dir := t.TempDir()
	for _, name := range []string{"a.md", "old.md", "gone.md"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	patch := "*** Begin Patch\n*** Update File: a.md\n@@\n-x\n+y\n*** Add File: /srv/new/cron\n+x\n*** Delete File: gone.md\n*** Update File: old.md\n*** Move to: keys\n@@\n-x\n+y\n*** End Patch\n"
	in := says(p, patch, map[string]any{"cwd": dir, "tool_name": "apply_patch"})
	if d, whole := p.answered(t, strings.NewReader(in)); d != "allow" {
		t.Fatal(whole)
	}
	var args struct {
		Dir   string
		Files []editedFile
	}
	if err := json.Unmarshal((<-b.asked).Args, &args); err != nil {
		t.Fatal(err)
	}
	x := digest([]byte("x\n"))
	if want := []editedFile{{dir + "/a.md", x, ""}, {"/srv/new/cron", "", ""}, {dir + "/gone.md", x, ""}, {dir + "/old.md", x, ""}, {dir + "/keys", "", ""}}; args.Dir != dir || !slices.Equal(args.Files, want) {
		t.Errorf("%+v", args)
	}
}

// A link in a checkout takes nothing out of it, and what it leads to is bound all the same.
func TestNothingIsSentOfWhatALinkOutOfTheCheckoutLeadsTo(t *testing.T) {
	home, dir := t.TempDir(), t.TempDir()
	secret := filepath.Join(home, "hosts.yml")
	write := func(text string) {
		if err := os.WriteFile(secret, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("oauth_token: sesame\n")
	if err := errors.Join(os.Mkdir(filepath.Join(dir, ".git"), 0o700), os.Symlink(secret, filepath.Join(dir, "run.sh")), os.WriteFile(filepath.Join(dir, "in.sh"), []byte("echo in\n"), 0o600), os.Symlink("in.sh", filepath.Join(dir, "too.sh"))); err != nil {
		t.Fatal(err)
	}
	changes := false
	b := newFakeBot(t, func(in client.Request) client.Result {
		if changes {
			write("another\n")
		}
		x := allowed(in)
		x.Request = "r"
		return x
	})
	p := installed(t, Programs[0], b.URL)
	ask := says(p, "sh run.sh; sh too.sh", map[string]any{"cwd": dir})
	if d, whole := p.answered(t, strings.NewReader(ask)); d != "allow" {
		t.Fatal(whole)
	}
	q := string((<-b.asked).Args)
	if strings.Contains(q, "sesame") || strings.Contains(q, digest([]byte("oauth_token: sesame\n"))) || !strings.Contains(q, `"link":"`+secret) || !strings.Contains(q, "echo in") {
		t.Error(q)
	}
	changes = true
	if d, whole := p.answered(t, strings.NewReader(ask)); d != "deny" || !strings.Contains(whole, "has changed") {
		t.Error(whole)
	}
}

// A word is a builtin of the shell only where a command begins.
func TestWhatChangesTheShellIsNotRunElsewhere(t *testing.T) {
	for command, want := range map[string]bool{
		"cd src && ls": true, "ls; cd src": true, "ls\ncd src": true, "(cd src; ls)": true, "if true; then export X=1; fi": true, ". ./env": true, "command cd src": true, "! cd src": true,
		"LANG=C cd /srv && ls": true, `A= B="x y" cd /srv`: true,
		"find . -name '*.js' | xargs wc -l": false, "grep -rn export src --include=*.js": false, "grep -rn set .": false, "for f in *; do wc -l $f; done": false,
	} {
		if moves.MatchString(command) != want {
			t.Errorf("%q: %v", command, !want)
		}
		q, err := Program{Rewrites: true, Lock: "/lock"}.commandOf(hookEvent{Dir: "/srv", Input: map[string]any{"command": command}})
		if asked, ok := q.(commandAsked); err != nil || !ok || (asked.lock == "") != want {
			t.Errorf("%q: %+v, %v", command, q, err)
		}
	}
}
