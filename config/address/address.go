// Package address is where the running bot of a data directory is reached from its own
// machine: the bot writes it down, and the commands beside it read it.
package address

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"countersign/config"
)

// Default is where the console listens when nothing else is said.
const Default = "127.0.0.1:8700"

// file is where a running bot says how it is reached from its own machine,
// so that the commands beside it need not be told. It is left behind by a crash.
const file = "address"

// Tell writes down where the bot of a data directory is reached. forget takes it back.
func Tell(dataDir, base string) (forget func(), err error) {
	path := filepath.Join(dataDir, file)
	part := path + ".part"
	forget = func() { _ = os.Remove(path) }
	if err := os.WriteFile(part, []byte(base+"\n"), 0o600); err != nil {
		return forget, err
	}
	return forget, os.Rename(part, path)
}

// URL is where the bot of this data directory is reached from its own machine.
func URL(e config.Env) string {
	if b, err := os.ReadFile(filepath.Join(e.DataDir, file)); err == nil {
		u, err := url.Parse(strings.TrimSpace(string(b)))
		if err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https") {
			return u.Scheme + "://" + local(u.Host)
		}
	}
	return "http://" + local(e.Listen)
}

// local is where a listener is reached from its own machine.
func local(listen string) string {
	if listen == "" {
		return Default
	}
	host, port, err := net.SplitHostPort(listen)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return listen
}

// Answers reports whether something listens at an address of [URL], within a second.
func Answers(ctx context.Context, base string) bool {
	u, err := url.Parse(base)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// Client asks the bot of this machine: no proxy, and no redirection to somebody
// else. Its certificate is made out to the name that people use, so it is not looked
// at; what is asked proves itself by the key of the data directory, both ways, or is
// no secret.
func Client() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			ResponseHeaderTimeout: 30 * time.Second, DisableCompression: true,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}, //nolint:gosec // see above
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
