package main

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"countersign/internal/config"
)

// addressFile is where a running bot says how it is reached from its own machine,
// so that the commands beside it need not be told. It is left behind by a crash.
const addressFile = "address"

func (b *bot) tellAddress(base string) error {
	path := filepath.Join(b.env.DataDir, addressFile)
	part := path + ".part"
	if err := os.WriteFile(part, []byte(base+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(part, path)
}

// ownURL is where the bot of this data directory is reached from its own machine.
func ownURL(e config.Env) string {
	if b, err := os.ReadFile(filepath.Join(e.DataDir, addressFile)); err == nil {
		u, err := url.Parse(strings.TrimSpace(string(b)))
		if err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https") {
			return u.Scheme + "://" + ownAddress(u.Host)
		}
	}
	return "http://" + ownAddress(e.Listen)
}

// ownAddress is where a listener is reached from its own machine.
func ownAddress(listen string) string {
	if listen == "" {
		return defaultListen
	}
	host, port, err := net.SplitHostPort(listen)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return listen
}

// ownClient asks the bot of this machine: no proxy, and no redirection to somebody
// else. Its certificate is made out to the name that people use, so it is not looked
// at; what is asked proves itself by the key of the data directory, both ways, or is
// no secret.
func ownClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			ResponseHeaderTimeout: 30 * time.Second, DisableCompression: true,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}, //nolint:gosec // see above
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
