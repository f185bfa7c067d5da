package config

import (
	"net"
	"net/url"
	"path/filepath"
)

// StreamConfig is a place that gets every decision and every run as an event.
type StreamConfig struct {
	To string `yaml:"to"` // StreamFile, StreamOTLP or StreamSyslog
	// Path is the file of StreamFile, URL the receiver for logs of StreamOTLP, and Address the host and port
	// of StreamSyslog.
	Path    string `yaml:"path,omitempty"`
	URL     string `yaml:"url,omitempty" secret:"url"`
	Address string `yaml:"address,omitempty"`
	// TokenEnv names the environment variable that holds a bearer token for URL; "" is none.
	TokenEnv string `yaml:"token_env,omitempty"`
	// CA is a file with the certificates that the server's must come from; "" is what the system trusts.
	// Cert and Key are files with the bot's own certificate.
	CA   string `yaml:"ca,omitempty"`
	Cert string `yaml:"cert,omitempty"`
	Key  string `yaml:"key,omitempty" secret:"file"`
}

// The values of a StreamConfig's To.
const (
	StreamFile   = "file"
	StreamOTLP   = "otlp"
	StreamSyslog = "syslog"
)

func checkStream(path string, all []StreamConfig) error {
	seen := map[StreamConfig]bool{}
	for i, s := range all {
		bad := func(format string, args ...any) error {
			return Errorf("%s: stream[%d]"+format, append([]any{path, i}, args...)...)
		}
		switch s.To {
		case StreamFile:
			if !filepath.IsAbs(s.Path) || s.URL+s.Address+s.TokenEnv+s.CA+s.Cert+s.Key != "" {
				return bad(" needs an absolute path, and nothing else")
			}
		case StreamOTLP:
			u, err := url.Parse(s.URL)
			if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())) {
				return bad(".url must begin with https://, as in https://collector.example.com:4318/v1/logs")
			}
			if s.Path+s.Address != "" {
				return bad(" has a url, so it needs no path and no address")
			}
		case StreamSyslog:
			if _, _, err := net.SplitHostPort(s.Address); err != nil || s.Path+s.URL+s.TokenEnv != "" {
				return bad(".address must be a host and a port, as in siem.example.com:6514")
			}
		default:
			return bad(".to is %q; use %s, %s or %s", s.To, StreamFile, StreamOTLP, StreamSyslog)
		}
		if (s.Cert == "") != (s.Key == "") {
			return bad(" needs cert and key, or neither")
		}
		if seen[s] {
			return bad(" is there twice")
		}
		seen[s] = true
	}
	return nil
}

func loopback(host string) bool { return host == "127.0.0.1" || host == "localhost" }
