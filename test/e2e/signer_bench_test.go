package e2e

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	xssh "golang.org/x/crypto/ssh"

	"countersign/adapters/chat"
	"countersign/approvals/passkey/passkeytest"
	"countersign/console"
)

// register registers a passkey of the person, who came by an operator's link, and returns the device
// and its line for the signer.
func (p *person) register(b testing.TB, device *passkeytest.Device) (line string) {
	b.Helper()
	var asked console.NewPasskey
	if st, err := p.do("POST", "/api/passkeys/begin", map[string]string{}, &asked); err != nil || st != http.StatusOK {
		b.Fatal(st, err)
	}
	challenge, err := base64.RawURLEncoding.DecodeString(asked.Challenge)
	if err != nil {
		b.Fatal(err)
	}
	if st, err := p.do("POST", "/api/passkeys", map[string]any{"name": "Laptop", "response": device.Create(challenge)}, nil); err != nil || st != http.StatusCreated {
		b.Fatal(st, err)
	}
	var keys struct {
		Mine []console.Passkey `json:"mine"`
	}
	if st, err := p.do("GET", "/api/passkeys", nil, &keys); err != nil || st != http.StatusOK || len(keys.Mine) != 1 {
		b.Fatal(st, err, keys)
	}
	return keys.Mine[0].Signer
}

// signedChange is change with a signature: the time from the press that has it to the model's next
// request.
func (p *pacer) signedChange(device *passkeytest.Device) time.Duration {
	p.b.Helper()
	p.say(fmt.Sprint("go ", p.n))
	button := p.alice.card(p.b, p.thread, "approve:")
	time.Sleep(500 * time.Millisecond)
	press := func(id, button string, signed *chat.Signed) (sign *chat.Signing) {
		var answer struct {
			OK     bool          `json:"ok"`
			Notice string        `json:"notice"`
			Sign   *chat.Signing `json:"sign"`
		}
		st, err := p.alice.do("POST", "/api/threads/"+p.thread+"/clicks", map[string]any{"id": id, "button": button, "signed": signed}, &answer)
		if err != nil || st != http.StatusOK || signed != nil && !answer.OK {
			p.b.Fatal(st, err, answer)
		}
		return answer.Sign
	}
	ask := press(fmt.Sprint("a", p.n), "sign:"+button, nil)
	if ask == nil {
		p.b.Fatal("nothing is to be signed")
	}
	challenge, err := base64.RawURLEncoding.DecodeString(ask.Challenge)
	if err != nil {
		p.b.Fatal(err)
	}
	signed := &chat.Signed{Nonce: ask.Nonce, Response: device.Sign(challenge)}
	from := time.Now()
	press(fmt.Sprint("s", p.n), button, signed)
	return p.result()[1].Sub(from)
}

// BenchmarkCertificate measures a signed change over SSH, from the press to the model's next request:
// with a key of the bot's, and with a certificate for the approval. Beside them stands what one set-up
// of a connection takes. The bar: one set-up more.
func BenchmarkCertificate(b *testing.B) {
	measure := func(config func(*enrolled) string, certificates bool) (took []time.Duration, e *enrolled) {
		p := newPacer(b, "")
		e = newEnrolled(b, p.bot)
		e.knows(1, "  alice: []\n", "alice")
		p.bot.configure(b, config(e))
		if certificates {
			e.enroll()
		}
		b.Cleanup(p.bot.kill)
		if !p.bot.start() {
			b.Fatal(p.bot.log)
		}
		p.bot.url = "http://localhost:" + e.ports // the name for which passkeys are
		p.alice = p.bot.login("alice", "--passkey")
		device := passkeytest.New("localhost", "http://localhost:"+e.ports)
		if line := p.alice.register(b, device); certificates {
			e.knows(1, "  alice: ["+line[2:]+"]\n", "alice")
		}
		p.will("touch "+e.dir+"/here", true)
		for range 12 {
			time.Sleep(300 * time.Millisecond) // the last result is stored
			took = append(took, p.signedChange(device))
		}
		return took[2:], e
	}
	const one = `
agent: {target: web-1}
web: {origin: "http://localhost:%[1]s"}
signer: {url: "unix:%[2]s/socket", token_file: %[2]s/token}
targets:
  web-1: {kind: ssh, host: 127.0.0.1, port: %[3]d, user: %[4]s, known_hosts: [%[5]s], tmux: false, dir: /, %[6]s, approvers: [oncall], approve: {proof: passkey}}
groups:
  oncall: {web: [alice]}
`
	config := func(more func(*enrolled) string) func(*enrolled) string {
		return func(e *enrolled) string {
			return fmt.Sprintf(one, e.ports, e.own, e.sshd.Port, e.sshd.User, e.sshd.KnownHosts, more(e))
		}
	}
	key, _ := measure(config(func(e *enrolled) string { return "identities: [" + e.sshd.KeyFile + "]" }), false)
	cert, e := measure(config(func(*enrolled) string { return "credential: per-approval, run_as: cstest-runas" }), true)
	var setup []time.Duration
	for range 10 {
		from := time.Now()
		conn, err := net.Dial("tcp", e.sshd.Address())
		if err != nil {
			b.Fatal(err)
		}
		raw, err := os.ReadFile(e.sshd.KeyFile)
		if err != nil {
			b.Fatal(err)
		}
		signer, err := xssh.ParsePrivateKey(raw)
		if err != nil {
			b.Fatal(err)
		}
		c, _, _, err := xssh.NewClientConn(conn, e.sshd.Address(), &xssh.ClientConfig{User: "root", Auth: []xssh.AuthMethod{xssh.PublicKeys(signer)}, HostKeyCallback: xssh.FixedHostKey(e.sshd.HostKey.PublicKey())})
		if err != nil {
			b.Fatal(err)
		}
		setup = append(setup, time.Since(from))
		_ = c.Close()
	}
	b.ReportMetric(median(cert), "ms-certificate")
	b.ReportMetric(median(key), "ms-key")
	b.ReportMetric(median(setup), "ms-set-up")
	b.ReportMetric((median(cert)-median(key))/median(setup), "set-ups-more")
}
