package tlsfile

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// pair makes a certificate for 127.0.0.1 and its key.
func pair(t *testing.T, serial int64, until time.Time) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "console"}, NotBefore: until.Add(-48 * time.Hour), NotAfter: until,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

func put(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// desk is two files, and a clock that the test moves.
type desk struct {
	t         *testing.T
	cert, key string
	log       *logged
	files     *files
	at        time.Time
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	dir := t.TempDir()
	d := &desk{t: t, cert: filepath.Join(dir, "tls.crt"), key: filepath.Join(dir, "tls.key"), log: &logged{}, at: time.Now()}
	c, k := pair(t, 1, d.at.Add(time.Hour))
	put(t, d.cert, c)
	put(t, d.key, k)
	d.files = &files{cert: d.cert, key: d.key, log: slog.New(slog.NewTextHandler(d.log, nil)), now: func() time.Time { return d.at }}
	found, sum, err := d.files.read()
	if err != nil {
		t.Fatal(err)
	}
	d.files.take(found, sum)
	return d
}

// serial is the certificate that a connection gets after a while.
func (d *desk) serial(wait time.Duration) int64 {
	d.t.Helper()
	d.at = d.at.Add(wait)
	c, err := d.files.get(nil)
	if err != nil {
		d.t.Fatal(err)
	}
	return c.Leaf.SerialNumber.Int64()
}

func TestANewPairIsTakenUp(t *testing.T) {
	d := newDesk(t)
	c, k := pair(t, 2, d.at.Add(time.Hour))
	put(t, d.cert, c)
	put(t, d.key, k)
	if n := d.serial(pause - time.Millisecond); n != 1 {
		t.Errorf("%d is served before anybody looked", n)
	}
	if n := d.serial(time.Millisecond); n != 2 {
		t.Errorf("%d is served", n)
	}
	if !strings.Contains(d.log.String(), "there is a new certificate") {
		t.Errorf("the log says %q", d.log)
	}
}

func TestWhatIsNoPairDoesNotReplaceOne(t *testing.T) {
	for _, c := range []struct {
		name string
		put  func(d *desk, cert, key []byte)
	}{
		{"the key comes later", func(d *desk, cert, _ []byte) { put(d.t, d.cert, cert) }},
		{"the certificate comes later", func(d *desk, _, key []byte) { put(d.t, d.key, key) }},
		{"half a certificate", func(d *desk, cert, key []byte) { put(d.t, d.cert, cert[:len(cert)/2]); put(d.t, d.key, key) }},
		{"nothing in it", func(d *desk, _, key []byte) { put(d.t, d.cert, nil); put(d.t, d.key, key) }},
		{"something endless", func(d *desk, _, _ []byte) { put(d.t, d.cert, make([]byte, maxFile+1)) }},
		{"it is gone", func(d *desk, _, _ []byte) { _ = os.Remove(d.cert) }},
		{"the key is gone", func(d *desk, _, _ []byte) { _ = os.Remove(d.key) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk(t)
			cert, key := pair(t, 2, d.at.Add(time.Hour))
			c.put(d, cert, key)
			for range 3 {
				if n := d.serial(pause); n != 1 {
					t.Errorf("%d is served", n)
				}
			}
			if n := strings.Count(d.log.String(), "level=ERROR"); n != 1 || strings.Contains(d.log.String(), "PRIVATE KEY") {
				t.Errorf("%d complaints: %s", n, d.log)
			}
			put(t, d.cert, cert)
			put(t, d.key, key)
			if n := d.serial(pause); n != 2 {
				t.Errorf("once it is whole, %d is served", n)
			}
		})
	}
}

func TestAnExpiredCertificateIsServedAndTold(t *testing.T) {
	d := newDesk(t)
	c, k := pair(t, 2, d.at.Add(-time.Hour))
	put(t, d.cert, c)
	put(t, d.key, k)
	if n := d.serial(pause); n != 2 || !strings.Contains(d.log.String(), "not valid at this time") {
		t.Errorf("%d is served; the log says %q", n, d.log)
	}
}

func TestTheFirstPairMustBeThere(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "c"), filepath.Join(dir, "k")
	if _, err := Config(cert, key, nil); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "name a PEM file") {
		t.Error(err)
	}
	c, _ := pair(t, 1, time.Now().Add(time.Hour))
	_, k := pair(t, 2, time.Now().Add(time.Hour))
	put(t, cert, c)
	if _, err := Config(cert, key, nil); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "key") {
		t.Error(err)
	}
	put(t, key, k)
	if _, err := Config(cert, key, nil); err == nil || !strings.Contains(err.Error(), "not a certificate and its key") {
		t.Error(err)
	}
}

func TestPeopleConnectWithIt(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "c"), filepath.Join(dir, "k")
	c, k := pair(t, 7, time.Now().Add(time.Hour))
	put(t, cert, c)
	put(t, key, k)
	cfg, err := Config(cert, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }), TLSConfig: cfg, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	ended := make(chan error, 1)
	go func() { ended <- srv.ServeTLS(ln, "", "") }()
	t.Cleanup(func() {
		_ = srv.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c)
	for _, v := range []struct {
		name     string
		min, max uint16
		ok       bool
	}{
		{"TLS 1.3", tls.VersionTLS13, tls.VersionTLS13, true},
		{"TLS 1.2", tls.VersionTLS12, tls.VersionTLS12, true},
		{"TLS 1.1", tls.VersionTLS11, tls.VersionTLS11, false},
	} {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: v.min, MaxVersion: v.max}}}
		res, err := client.Get("https://" + ln.Addr().String())
		if (err == nil) != v.ok {
			t.Errorf("%s: %v", v.name, err)
		}
		if err == nil {
			if n := res.TLS.PeerCertificates[0].SerialNumber.Int64(); n != 7 {
				t.Errorf("%s: certificate %d", v.name, n)
			}
			_ = res.Body.Close()
		}
		client.CloseIdleConnections()
	}
}
