package bot

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"maps"
	"os"
	"strings"
	"time"

	"countersign/approvals"
	"countersign/approvals/audit"
	"countersign/bot/stream"
	"countersign/config"
	"countersign/internal/redact"
	"countersign/store"
	"countersign/store/courier"
)

// newStream makes the stream of decisions and runs.
func (b *Bot) newStream(version string) (*stream.Stream, error) {
	host, _ := os.Hostname()
	c := stream.Config{DB: b.db, Command: b.commandOf, Version: version, Host: host, Log: b.log.With("part", "stream"), Now: time.Now}
	for _, s := range b.file.Stream {
		sink := stream.Sink{File: s.Path, Collector: s.URL, Syslog: s.Address}
		if s.TokenEnv != "" {
			if b.secret(s.TokenEnv) == "" {
				return nil, config.Errorf("stream: the environment variable %s is not set; it holds the token for %s", s.TokenEnv, s.URL)
			}
			sink.Headers = func() map[string]redact.Secret {
				return map[string]redact.Secret{"Authorization": redact.Secret("Bearer " + b.secret(s.TokenEnv))}
			}
		}
		var err error
		if sink.TLS, err = tlsOf(s); err != nil {
			return nil, err
		}
		c.Sinks = append(c.Sinks, sink)
	}
	return stream.New(c), nil
}

// commandOf is a request's command without secrets.
func (b *Bot) commandOf(tx store.Tx, request string) string {
	rec, _ := (approvals.Ledger{}).Get(tx, approvals.ID(request))
	text := b.redactor.RedactCommand(strings.ToValidUTF8(string(rec.Action.Bytes), "\uFFFD"))
	return text[:min(len(text), audit.MaxText)]
}

// tlsOf is how the bot talks to a server of the stream; nil is as the system does.
func tlsOf(s config.StreamConfig) (*tls.Config, error) {
	if s.CA == "" && s.Cert == "" {
		return nil, nil //nolint:nilnil // the zero value
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.CA != "" {
		pem, err := os.ReadFile(s.CA)
		if err != nil {
			return nil, config.Errorf("stream: ca can't be read: %v", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, config.Errorf("stream: %s holds no certificate", s.CA)
		}
	}
	if s.Cert != "" {
		pair, err := tls.LoadX509KeyPair(s.Cert, s.Key)
		if err != nil {
			return nil, config.Errorf("stream: cert and key can't be used: %v", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// lag says how long what other systems are to be told has waited.
func (b *Bot) lag(ctx context.Context) (map[string]time.Duration, error) {
	all := map[string]time.Duration{}
	for _, c := range []*courier.Courier{b.webhooks.Courier, b.stream.Courier, b.comments.Courier} {
		lag, err := c.Lag(ctx)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, lag)
	}
	return all, nil
}
