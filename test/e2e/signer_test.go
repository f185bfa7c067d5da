package e2e

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	xssh "golang.org/x/crypto/ssh"

	"countersign/targets/ssh/sshtest"
	"countersign/test/buildtest"
	"countersign/test/needstest"
)

// signerConfig is a bot that has no key of its host.
const signerConfig = `
agent: {target: web-1}
web: {origin: "http://localhost:%[1]s"}
signer: {url: "unix:%[2]s/socket", token_file: %[2]s/token}
targets:
  web-1:
    kind: ssh
    host: 127.0.0.1
    port: %[3]d
    user: %[4]s
    known_hosts: [%[5]s]
    credential: per-approval
    run_as: cstest-runas
    approvers: [oncall]
    approve: {proof: passkey}
groups:
  oncall: {web: [alice, bob]}
  team: {web: [dave]}
policy: {approve: {count: 2}}
`

// enrolled is a host that was enrolled, and its signer.
type enrolled struct {
	t                     testing.TB
	sshd                  *sshtest.Server
	dir, root, own        string // dir: others may write there
	signer, runner, ports string
	page, glass           string // the port of the signer's own page, and who may break the glass; "" for none
	authority             *program
}

// newEnrolled starts a host and a signer that knows nobody yet. The host isn't enrolled.
func newEnrolled(t testing.TB, b *bot) *enrolled {
	t.Helper()
	if os.Geteuid() != 0 {
		needstest.Missing(t, "only root can enroll a host: run the tests as root in a container")
	}
	dir, err := os.MkdirTemp("", "cs-cred-") //nolint:usetesting // other accounts write there
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	e := &enrolled{t: t, dir: dir, root: filepath.Join(dir, "host"), own: filepath.Join(t.TempDir(), "signer")}
	e.must(os.Chmod(dir, 0o777))
	e.sshd = sshtest.Start(t, sshtest.Options{Shell: "bash", Enrolled: e.root})
	e.signer, e.runner = e.build("countersign-signer"), e.build("countersign-runner")
	_, e.ports, _ = strings.Cut(b.listen, ":")
	if out, err := exec.CommandContext(t.Context(), e.signer, "init", e.own).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return e
}

func (e *enrolled) must(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

func (e *enrolled) build(name string) string {
	e.t.Helper()
	path, err := buildtest.Program(e.t.Context(), e.t.TempDir(), "cmd/"+name, []string{"CGO_ENABLED=0"})
	e.must(err)
	return path
}

// knows has the signer know people, by their lines, of whom count must approve.
func (e *enrolled) knows(count int, people string, of string) {
	e.t.Helper()
	if e.authority != nil {
		e.authority.stop()
	}
	config, listen := filepath.Join(e.own, "signer.yaml"), e.own+"/socket"
	if e.page != "" {
		listen = "127.0.0.1:" + e.page + "\norigin: http://signer.localhost:" + e.page
	}
	e.must(os.WriteFile(config, fmt.Appendf(nil, "listen: %[9]s\ntoken: token\nca: ca\nstate: issued\nconsole: http://localhost:%[2]s\nrunner: %[3]s/usr/local/lib/countersign/countersign-runner\npeople:\n%[4]stargets:\n"+
		"  web-1: {host_key: %[5]q, from: [127.0.0.1], users: [cstest-runas], watch: %[6]s, approvals: [{count: %[7]d, of: [%[8]s]}], break_glass: [%[10]s]}\n",
		e.own, e.ports, e.root, people, xssh.FingerprintSHA256(e.sshd.HostKey.PublicKey()), e.sshd.User, count, of, listen, e.glass), 0o600))
	e.authority = signing(e.t, e.signer, config)
}

// enroll runs the script that the signer prints.
func (e *enrolled) enroll() {
	e.t.Helper()
	script := exec.CommandContext(e.t.Context(), e.signer, "enroll", "web-1", "--program", e.runner, "--config", filepath.Join(e.own, "signer.yaml"))
	script.Stderr = os.Stderr
	text, err := script.Output()
	e.must(err)
	e.must(os.MkdirAll(filepath.Join(e.root, "etc/ssh"), 0o755))
	e.must(os.WriteFile(filepath.Join(e.root, "etc/ssh/ssh_host_ed25519_key.pub"), xssh.MarshalAuthorizedKey(e.sshd.HostKey.PublicKey()), 0o644))
	c := exec.CommandContext(e.t.Context(), "sh")
	c.Env, c.Stdin = append(os.Environ(), "ROOT="+e.root), bytes.NewReader(text)
	if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "web-1 takes certificates") {
		e.t.Fatalf("%v: %s", err, out)
	}
	e.sshd.Restart()
}

// panes is what the terminals of the read-only account show.
func (e *enrolled) panes() string {
	var all strings.Builder
	_ = filepath.WalkDir(filepath.Join(e.root, "var/lib/countersign-runner", e.sshd.User), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type()&fs.ModeSocket != 0 {
			list, _ := exec.Command("tmux", "-S", path, "list-panes", "-a", "-F", "#{pane_id}").Output()
			for id := range strings.FieldsSeq(string(list)) {
				out, _ := exec.Command("tmux", "-S", path, "capture-pane", "-p", "-t", id).Output()
				all.Write(out)
			}
		}
		return nil
	})
	return all.String()
}

// program is a running program that isn't the bot.
type program struct {
	cmd *exec.Cmd
	out bytes.Buffer
}

// signing runs the signer until the test ends, or stop.
func signing(t testing.TB, path, config string) *program {
	t.Helper()
	p := &program{cmd: exec.Command(path, "run", "--config", config)}
	p.cmd.Stderr = &p.out
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stop)
	first := make([]byte, 200)
	n, _ := out.Read(first)
	if !strings.Contains(string(first[:n]), "listens at") {
		_ = p.cmd.Wait()
		t.Fatalf("the signer says %q %s", first[:n], p.out.String())
	}
	return p
}

func (p *program) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.cmd.Wait()
}

// line is a person's line for the signer, from the settings.
func (g *guest) signerLine() string {
	g.t.Helper()
	g.do("copying it", script(`navigator.clipboard.writeText = async (t) => { window.copied = t; }`), pressed("Copy for the signer"), until(`Boolean(window.copied)`))
	line, err := chromedp.Run(g.ctx, chromedp.Evaluate[string](`window.copied`))
	if err != nil {
		g.t.Fatal(err)
	}
	return line
}

// text is what a part of the page says.
func (g *guest) text(css string) string {
	g.t.Helper()
	words, err := chromedp.Run(g.ctx, chromedp.Evaluate[string](fmt.Sprintf(`document.querySelector(%q)?.textContent || ''`, css)))
	if err != nil {
		g.t.Fatal(err)
	}
	return words
}

// TestTheApprovalIsTheCredential: a bot without a key of its host, a signer that knows the people's
// passkeys, and a host enrolled by the printed script. Reads run without asking, a change by two
// signatures as another account; the host's own log says whose; without the signer nothing runs; a bot
// that is killed finds the run again.
func TestTheApprovalIsTheCredential(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	var e *enrolled
	files, err := os.MkdirTemp("", "cs-ran-") //nolint:usetesting // other accounts write there
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(files) })
	if err := os.Chmod(files, 0o777); err != nil {
		t.Fatal(err)
	}
	ran, going, release := filepath.Join(files, "ran"), filepath.Join(files, "going"), filepath.Join(files, "release")
	b := newBot(t, "", model(t, func(results int, user string) turn {
		switch {
		case results > 0:
			return turn{text: "the end of " + user[strings.Index(user, "please"):]}
		case strings.Contains(user, "please change"):
			return turn{calls: []call{shell("id -un >>" + ran + "; echo changed")}}
		case strings.Contains(user, "please look"):
			return turn{calls: []call{look("id -un; uname -s")}}
		case strings.Contains(user, "please wait"):
			return turn{calls: []call{shell("echo one >>" + going + "; while [ ! -e " + release + " ]; do sleep 0.05; done; echo two")}}
		}
		return turn{text: "well"}
	}).URL)
	e = newEnrolled(t, b)
	s := e.sshd
	e.knows(2, "  alice: []\n  bob: []\n", "alice, bob")
	b.configure(t, fmt.Sprintf(signerConfig, e.ports, e.own, s.Port, s.User, s.KnownHosts))
	e.enroll()

	if !b.start() {
		t.Fatalf("the bot does not start:\n%s", b.log)
	}
	alice, bob, dave := b.browser(t, "alice", 1280, 800), b.browser(t, "bob", 1280, 800), b.browser(t, "dave", 1280, 800)
	people := ""
	for name, g := range map[string]*guest{"alice": alice, "bob": bob} {
		g.device()
		g.enter(b.link(t, name, "--passkey"))
		g.do("adding a passkey", shows("#passkeys-state", "lets you add one passkey"), keys("#passkeys-name", "Laptop"), pressed("Add a passkey"), shows("#passkeys-mine", "Copy for the signer"))
		people += "  " + name + ":\n    " + g.signerLine() + "\n"
		if name == "alice" {
			g.picture("signer-line")
		}
		g.do("closing", script(`document.querySelector('#settings-box').close()`))
	}
	e.knows(2, people, "alice, bob")

	dave.enter(b.link(t, "dave"))
	dave.do("a read", keys("#text", "please look"+kb.Enter), shows("#log", "the end of please look"))
	if words := dave.text("#log"); !strings.Contains(words, s.User) || !strings.Contains(words, "Linux") {
		t.Errorf("the read shows %q", words)
	}
	open := func(g *guest, words string) {
		g.do("the conversation", until(`document.querySelector('.thread')?.textContent.includes('please')`), script(`document.querySelector('.thread').click()`), shows("#log .card.open", words))
	}
	dave.do("a change", keys("#text", "please change"+kb.Enter), shows("#log .card.open", "needs 2 of oncall by passkey"), shows("#log .card.open", "cstest-runas"))
	dave.picture("credential-card")
	open(alice, "id -un")
	alice.approves(shows("#told", "still needs 1 of 2"))
	open(bob, "id -un")
	bob.approves(shows("#log", "the end of please change"))
	if raw, _ := os.ReadFile(ran); string(raw) != "cstest-runas\n" {
		t.Fatalf("it ran as %q\n%s\n%s", raw, dave.text("#log"), b.log)
	}
	if log := s.Log(); !strings.Contains(log, "approved by alice, bob") && !strings.Contains(log, "approved by bob, alice") {
		t.Errorf("sshd's log does not say who approved:\n%s", log)
	}
	eventually(t, "the pane shows it", func() bool {
		return strings.Contains(e.panes(), "echo changed") && strings.Contains(e.panes(), "\nchanged")
	}, e.panes)
	bob.picture("credential-done")
	doctor, _, _ := b.run("", "doctor")
	if !strings.Contains(doctor, "certificates of web-1") || !strings.Contains(doctor, "ok   terminals of web-1") {
		t.Errorf("the doctor says nothing of certificates:\n%s", doctor)
	}

	// A bot that is killed finds the run again.
	dave.do("a long change", keys("#text", "please wait"+kb.Enter), shows("#log .card.open", "needs 2 of oncall"))
	alice.do("seeing it", shows("#log .card.open", "going"))
	alice.approves(shows("#told", "still needs 1 of 2"))
	bob.do("seeing it", shows("#log .card.open", "going"), shows("#log .card.open", "1 so far"))
	bob.approves()
	eventually(t, "the command runs", func() bool { return lines(going) == 1 }, func() string { return b.log.String() })
	b.kill()
	e.must(os.WriteFile(release, nil, 0o644))
	if !b.start() {
		t.Fatalf("the bot does not start again:\n%s", b.log)
	}
	dave.do("its end", shows("#log", "the end of please wait"))
	if words := dave.text("#log"); lines(going) != 1 || !strings.Contains(words, "two") {
		t.Errorf("after the kill it ran %d times:\n%s", lines(going), words)
	}

	// Without the signer nothing runs.
	e.authority.stop()
	dave.do("another change", keys("#text", "please change again"+kb.Enter), shows("#log .card.open", "needs 2 of oncall"))
	alice.do("seeing it", shows("#log .card.open", "id -un"))
	alice.approves(shows("#log .card.open .notice", "signer doesn"))
	if lines(ran) != 1 {
		t.Fatalf("it ran %d times", lines(ran))
	}
	dave.picture("credential-no-signer")
}
