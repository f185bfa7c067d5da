package ssh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	xssh "golang.org/x/crypto/ssh"
)

// conn is one login at the host, over as many connections as there are hops.
type conn struct {
	client *xssh.Client
	root   net.Conn // closing it ends all hops at once
	wire   *wire

	once sync.Once
	dead chan struct{} // closed when the connection has ended
	err  error         // why; set before dead is closed

	// Guarded by Target.mu.
	inUse   int       // channels that the host may count as sessions
	noSpare bool      // the host refused one
	refused time.Time // when the host last refused a session here
	noSFTP  bool      // the host has no SFTP
}

// close gives the connection up: everybody on it is told that it is lost.
func (c *conn) close(why error) {
	c.once.Do(func() {
		c.err = why
		c.wire.broken.Store(true)
		_ = c.root.Close()
	})
}

// wire notes signs of life, and when there will be none any more.
type wire struct {
	net.Conn
	reads  atomic.Int64
	last   atomic.Int64 // when it was read last, in nanoseconds since 1970
	broken atomic.Bool
}

// heardSince reports whether the host has said something within a time.
func (w *wire) heardSince(d time.Duration) bool {
	return time.Since(time.Unix(0, w.last.Load())) < d
}

func (w *wire) Read(b []byte) (int, error) {
	quickAck(w.Conn)
	n, err := w.Conn.Read(b)
	w.reads.Add(int64(n))
	w.last.Store(time.Now().UnixNano())
	if err != nil {
		w.broken.Store(true)
	}
	return n, err
}

func (w *wire) Close() error {
	w.broken.Store(true)
	return w.Conn.Close()
}

// connect logs in at every hop in turn. It leaves nothing open when it fails.
func (t *Target) connect(ctx context.Context, hops []Hop) (_ *conn, err error) {
	db, err := loadKnown(ctx, t.c.KnownHosts, t.c.Approved)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	pins := append([]xssh.PublicKey(nil), t.pins...)
	t.mu.Unlock()

	var via *xssh.Client
	var root net.Conn
	var w *wire
	defer func() {
		if err != nil && root != nil {
			_ = root.Close()
		}
	}()
	for i, hop := range hops {
		raw, err := t.reach(ctx, via, root, hop)
		if err != nil {
			return nil, err
		}
		if root == nil {
			root = raw
		}
		w = &wire{Conn: raw}
		var checkErr error
		var met xssh.PublicKey
		cc := &xssh.ClientConfig{
			User:              hop.User,
			HostKeyAlgorithms: hostAlgorithms(db, hop.address(), pins[i]),
			HostKeyCallback: func(_ string, remote net.Addr, key xssh.PublicKey) error {
				checkErr = checkHost(db, hop.Host, hop.address(), pins[i], remote, key)
				met = key
				return checkErr
			},
		}
		via, err = t.login(ctx, root, w, hop, cc)
		if err != nil {
			if checkErr != nil {
				return nil, checkErr
			}
			return nil, err
		}
		pins[i] = met
	}
	t.mu.Lock()
	copy(t.pins, pins)
	t.mu.Unlock()
	return &conn{client: via, root: root, wire: w, dead: make(chan struct{})}, nil
}

// reach opens the stream to a hop: directly, or through the one before.
func (t *Target) reach(ctx context.Context, via *xssh.Client, root net.Conn, hop Hop) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, t.c.DialTimeout)
	defer cancel()
	if via == nil {
		var d net.Dialer
		raw, err := d.DialContext(ctx, "tcp", hop.address())
		if err != nil {
			return nil, reachError(hop, err)
		}
		return raw, nil
	}
	stop := context.AfterFunc(ctx, func() { _ = root.Close() })
	defer stop()
	raw, err := via.DialContext(ctx, "tcp", hop.address())
	if err != nil {
		return nil, fmt.Errorf("%s cannot be reached through the jump host; check the name and that the jump host allows forwarding: %w", hop.address(), err)
	}
	return raw, nil
}

// reachError says in a sentence why there is no connection.
func reachError(hop Hop, err error) error {
	var dns *net.DNSError
	var ne net.Error
	what := "cannot be reached; check the network"
	switch {
	case errors.As(err, &dns):
		what = "has no address; check the host's name"
	case errors.Is(err, syscall.ECONNREFUSED):
		what = "refuses connections; check the port and that sshd runs there"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		what = "cannot be reached: there is no route; check the network, the VPN or a jump host"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &ne) && ne.Timeout():
		what = "does not answer in time; check that the host is up and no firewall drops the connection"
	}
	return fmt.Errorf("%s %s: %w", hop.address(), what, err)
}

// login shakes hands over a stream. The end of ctx, or of the time for it, cuts the
// whole connection.
func (t *Target) login(ctx context.Context, root net.Conn, w *wire, hop Hop, cc *xssh.ClientConfig) (*xssh.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(hop.patience, t.c.HandshakeTimeout))
	defer cancel()
	keys := &keyring{names: []string{"a certificate of the signer"}}
	var refused error
	if hop.login != nil {
		cc.Auth = []xssh.AuthMethod{xssh.PublicKeysCallback(func() (signers []xssh.Signer, err error) {
			signers, refused = hop.login(w.broken.Load)
			return signers, refused
		})}
	} else {
		var err error
		if keys, err = hop.keys(ctx, t.c.Now()); err != nil {
			_ = w.Close()
			return nil, err
		}
		defer keys.close()
		cc.Auth = []xssh.AuthMethod{xssh.PublicKeys(keys.signers...)}
	}
	cut := context.AfterFunc(ctx, func() { _ = root.Close() })
	sc, chans, reqs, err := xssh.NewClientConn(w, hop.address(), cc)
	if !cut() && err == nil {
		_ = sc.Close()
		err = ctx.Err()
	}
	if err == nil {
		return xssh.NewClient(sc, chans, reqs), nil
	}
	var algorithms *xssh.AlgorithmNegotiationError
	switch {
	case refused != nil:
		return nil, refused
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, fmt.Errorf("%s accepted the connection but did not finish the login in %v; check its load and that it is an SSH "+
			"server: %w", hop.address(), t.c.HandshakeTimeout, ctx.Err())
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case hop.login != nil && strings.Contains(err.Error(), "unable to auth"):
		return nil, fmt.Errorf("%s does not let %s in with a certificate of the signer; enroll the host again, and compare its clock with the signer's: %w", hop.address(), hop.User, err)
	case strings.Contains(err.Error(), "unable to authenticate"), strings.Contains(err.Error(), "Too many authentication failures"):
		return nil, &AuthError{User: hop.User, Address: hop.address(), Tried: keys.names, Skipped: keys.skipped, Err: err}
	case errors.As(err, &algorithms):
		return nil, fmt.Errorf("%s and we have no %s in common; update the older of the two: %w", hop.address(), algorithms.What, err)
	}
	return nil, fmt.Errorf("%s ended the connection before the login; look into its log (MaxStartups, a firewall, no SSH server at all): %w", hop.address(), err)
}

// attend owns a connection until it has ended.
func (t *Target) attend(c *conn) {
	defer t.wg.Done()
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		err := watch(quit, t.c.Keepalive, t.c.Misses, c.wire.reads.Load, c.ping)
		if err != nil {
			t.log.Warn("the connection is given up", "error", err)
			c.close(err)
		}
	})
	err := c.client.Wait()
	if err == nil {
		err = errors.New("the host closed the connection")
	}
	c.close(err)
	close(c.dead)
	close(quit)
	wg.Wait()
	t.drop(c)
}

// ping asks the host for an answer, whatever it is, and waits for it.
func (c *conn) ping() error {
	_, _, err := c.client.SendRequest("keepalive@openssh.com", true, nil)
	return err
}

// errSilent is why a connection was given up.
var errSilent = errors.New("the host no longer answers")

// watch asks every interval for a sign of life and returns errSilent after misses
// intervals in a row that had neither an answer nor any other byte. It returns nil
// when quit is closed, or ping fails, which means that the connection has ended.
func watch(quit <-chan struct{}, interval time.Duration, misses int, reads func() int64, ping func() error) error {
	answers := make(chan error, 1)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	asked, missed, seen := false, 0, reads()
	for {
		select {
		case <-quit:
			return nil
		case err := <-answers:
			if err != nil {
				return nil
			}
			asked, missed = false, 0
		case <-tick.C:
			now := reads()
			if asked && now == seen {
				if missed++; missed >= misses {
					return fmt.Errorf("%w for %v", errSilent, time.Duration(misses)*interval)
				}
			} else {
				missed = 0
			}
			seen = now
			if !asked {
				asked = true
				// It may block until the connection is closed, which follows.
				go func() { answers <- ping() }()
			}
		}
	}
}
