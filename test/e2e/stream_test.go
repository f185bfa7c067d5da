package e2e

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/test/needstest"
)

// collected are the operations of OCSF events of requests, in order.
func collected(lines []string) (out []string) {
	for _, l := range lines {
		var e struct {
			Class    int                               `json:"class_uid"`
			Activity int                               `json:"activity_id"`
			Metadata struct{ UID, Correlation string } `json:"metadata"`
			API      struct{ Operation string }        `json:"api"`
			Process  struct {
				Command string `json:"cmd_line"`
			} `json:"process"`
		}
		switch err := json.Unmarshal([]byte(l), &e); {
		case err != nil:
			out = append(out, err.Error())
		case e.Class == 1007 && e.Activity == 1:
			out = append(out, "launch "+e.Process.Command)
		case e.Class == 1007:
			out = append(out, "terminate "+e.Process.Command)
		case strings.HasPrefix(e.API.Operation, "request."):
			out = append(out, e.API.Operation)
		}
	}
	return out
}

// A collector that is away while things happen learns all of them, also from the next process of the bot; a
// file has them, too.
func TestEveryDecisionAndRunIsStreamed(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	srv := newEventReceiver(t)
	srv.set(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	dir := t.TempDir()
	file := filepath.Join(dir, "events.jsonl")
	c := newCrew(t, part{"do", []turn{{text: "I do it.", calls: []call{shell("touch " + dir + "/made")}}}}).enter(t, plainConfig+`
stream:
  - {to: otlp, url: "`+srv.URL+`/v1/logs"}
  - {to: file, path: `+file+`}
`)
	c.tell("do")
	c.as("bob").press("approve:")
	eventually(t, "the end", func() bool { return c.ends() == 1 }, c.shown)
	want := []string{"request.asked", "request.approved", "launch touch " + dir + "/made", "terminate touch " + dir + "/made"}
	has := func(all []string) bool {
		seen := slices.DeleteFunc(collected(all), func(s string) bool { return s == "request.receipt" })
		return slices.Equal(seen, want)
	}
	lines := func() []string {
		f, err := os.Open(file)
		if err != nil {
			return nil
		}
		defer func() { _ = f.Close() }()
		var all []string
		for sc := bufio.NewScanner(f); sc.Scan(); {
			all = append(all, sc.Text())
		}
		return all
	}
	eventually(t, "the file has it", func() bool { return has(lines()) }, func() string { return strings.Join(lines(), "\n") })
	eventually(t, "one line of the log says that the collector is away", func() bool { return strings.Count(c.b.log.String(), "a receiver takes no messages") == 1 }, c.b.log.String)
	c.b.kill()
	srv.set(nil)
	c.again()
	eventually(t, "the collector has it", func() bool { return has(srv.events()) }, func() string { return strings.Join(srv.operations(), "\n") + "\n" + c.b.log.String() })
}

// authority is a certificate authority for tests, with what it signed as files.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.sign(t, "ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

func (a *authority) path(file string) string { return filepath.Join(a.dir, file) }

// sign makes NAME.pem and NAME.key.
func (a *authority) sign(t *testing.T, name string, c *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	if a.cert == nil {
		a.cert, a.key = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if c.IsCA {
		if a.cert, err = x509.ParseCertificate(der); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{name + ".pem": {Type: "CERTIFICATE", Bytes: der}, name + ".key": {Type: "PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(a.path(file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// rsyslog is a real syslog server that takes messages only from whom the authority signed. It writes the head's
// fields and the message of each into a file.
func rsyslog(t *testing.T, a *authority) (addr, path string) {
	t.Helper()
	if _, err := exec.LookPath("rsyslogd"); err != nil {
		needstest.Missing(t, "rsyslogd is not installed")
	}
	dir := t.TempDir()
	address, file := freePort(t), filepath.Join(dir, "log")
	_, port, _ := net.SplitHostPort(address)
	text := fmt.Sprintf(`global(workDirectory=%q defaultNetstreamDriver="ossl" maxMessageSize="64k"
  defaultNetstreamDriverCAFile=%q defaultNetstreamDriverCertFile=%q defaultNetstreamDriverKeyFile=%q)
module(load="imtcp" streamDriver.name="ossl" streamDriver.mode="1" streamDriver.authMode="x509/certvalid")
template(name="all" type="string" string="%%pri%% %%app-name%% %%msgid%% %%msg%%\n")
input(type="imtcp" port=%q address="127.0.0.1" ruleset="all")
ruleset(name="all") { action(type="omfile" file=%q template="all" asyncWriting="off") }
`, dir, a.path("ca.pem"), a.path("server.pem"), a.path("server.key"), port, file)
	conf := filepath.Join(dir, "rsyslog.conf")
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd := exec.Command("rsyslogd", "-n", "-f", conf, "-i", filepath.Join(dir, "pid"))
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(said.String())
		}
	})
	return address, file
}

// A real syslog server and a collector that both want a certificate of the bot's, from an authority that only the
// configuration names.
func TestTheStreamProvesWhoTheBotIs(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	a := newAuthority(t)
	a.sign(t, "server", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	a.sign(t, "bot", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	address, file := rsyslog(t, a)
	pair, err := tls.LoadX509KeyPair(a.path("server.pem"), a.path("server.key"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	plain := newEventReceiver(t)
	collector := httptest.NewUnstartedServer(plain.Config.Handler)
	collector.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}
	collector.StartTLS()
	t.Cleanup(collector.Close)

	dir := t.TempDir()
	proof := fmt.Sprintf("ca: %s, cert: %s, key: %s", a.path("ca.pem"), a.path("bot.pem"), a.path("bot.key"))
	c := newCrew(t, part{"do", []turn{{text: "I do it.", calls: []call{shell("touch " + dir + "/made")}}}}).enter(t, plainConfig+`
stream:
  - {to: otlp, url: "`+collector.URL+`/v1/logs", `+proof+`}
  - {to: syslog, address: "`+address+`", `+proof+`}
`)
	c.tell("do")
	c.as("bob").press("approve:")
	eventually(t, "the end", func() bool { return c.ends() == 1 }, c.shown)
	want := []string{"request.asked", "request.approved", "launch touch " + dir + "/made", "terminate touch " + dir + "/made"}
	has := func(all []string) bool {
		return slices.Equal(slices.DeleteFunc(collected(all), func(s string) bool { return s == "request.receipt" }), want)
	}
	logged := func() (messages []string) {
		raw, _ := os.ReadFile(file) // it comes with the first message
		for l := range strings.Lines(string(raw)) {
			head, message, ok := strings.Cut(strings.TrimSpace(l), "{")
			var priority int
			if n, _ := fmt.Sscanf(head, "%d countersign ocsf", &priority); !ok || n != 1 || priority/8 != 13 {
				t.Errorf("%q", l)
			}
			messages = append(messages, "{"+message)
		}
		return messages
	}
	eventually(t, "the collector has it", func() bool { return has(plain.events()) }, func() string { return strings.Join(plain.operations(), "\n") + "\n" + c.b.log.String() })
	eventually(t, "the syslog server has it", func() bool { return has(logged()) }, func() string { return strings.Join(collected(logged()), "\n") + "\n" + c.b.log.String() })
}
