package gateway

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

// through dials addr, by way of the proxy that the environment names for it
// (HTTPS_PROXY and NO_PROXY, as for HTTP calls). Only encrypted connections go
// through a proxy: there is TLS inside the tunnel.
func (s *Supervisor) through(ctx context.Context, network, addr string) (net.Conn, error) {
	proxy, err := s.proxy(&http.Request{URL: &url.URL{Scheme: "https", Host: addr}})
	if err != nil {
		return nil, errors.New("the proxy's address in the environment is none")
	}
	if proxy == nil {
		return s.cfg.Dial(ctx, network, addr)
	}
	port := proxy.Port()
	switch {
	case proxy.Scheme != "http" && proxy.Scheme != "https":
		return nil, fmt.Errorf("a proxy of the kind %s is not supported; use one with http or https", proxy.Scheme)
	case port == "" && proxy.Scheme == "https":
		port = "443"
	case port == "":
		port = "80"
	}
	c, err := s.cfg.Dial(ctx, network, net.JoinHostPort(proxy.Hostname(), port))
	if err != nil {
		return nil, fmt.Errorf("the proxy does not answer: %w", err)
	}
	tunnel, err := s.tunnel(ctx, c, proxy, addr)
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return tunnel, nil
}

// tunnel asks a proxy for a connection to addr.
func (s *Supervisor) tunnel(ctx context.Context, c net.Conn, proxy *url.URL, addr string) (net.Conn, error) {
	if proxy.Scheme == "https" {
		t := tls.Client(c, &tls.Config{ServerName: proxy.Hostname(), MinVersion: tls.VersionTLS12, RootCAs: s.roots})
		if err := t.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		c = t
	}
	// A wait for an answer ends with ctx.
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: addr}, Host: addr, Header: http.Header{}}
	if u := proxy.User; u != nil {
		word, _ := u.Password()
		req.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(u.Username()+":"+word)))
	}
	if err := req.Write(c); err != nil {
		return nil, err
	}
	in := bufio.NewReader(c)
	res, err := http.ReadResponse(in, req)
	if err != nil {
		return nil, fmt.Errorf("the proxy did not answer: %w", err)
	}
	_ = res.Body.Close() // it has none
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the proxy refused the connection: %s", clip(res.Status))
	}
	if in.Buffered() > 0 {
		return nil, errors.New("the proxy spoke before it was asked")
	}
	return c, nil
}
