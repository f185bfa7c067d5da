// Package ssh is the target for one SSH host. Commands run over channels of a connection that is
// dialed on first use, kept alive, and redialed after it was lost. Processes, the records of how
// they ended, and most file operations are in targets/remote; this package authenticates the host
// and the bot, and transports bytes.
//
// It never trusts a host on its own, whatever known_hosts or ssh_config allow: an unknown host is
// an [UnknownHostError], and [Trust] is for code that has asked people. It does not support
// passwords or keyboard-interactive authentication, and forwards no agent, port or display.
package ssh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	xssh "golang.org/x/crypto/ssh"

	"countersign/targets/backend"
	"countersign/targets/remote"
)

// Defaults of [Config].
const (
	DefaultPort = 22
	// DefaultKeepalive and DefaultMisses detect a dead connection within a minute.
	DefaultKeepalive = 15 * time.Second
	DefaultMisses    = 3
	// DefaultMaxChannels is below MaxSessions of sshd_config(5), which is 10, because sshd frees a
	// session only a moment after its channel has ended.
	DefaultMaxChannels      = 6
	DefaultMaxConns         = 4 // more than one only where MaxSessions is small or all are busy
	DefaultDialTimeout      = 10 * time.Second
	DefaultHandshakeTimeout = 20 * time.Second
)

// Hop is a host to log in to, with the keys for it.
type Hop struct {
	Host string // a name or an address, as in known_hosts
	Port int    // 0 means 22
	User string // there
	// Identities are private key files, tried in order. A file NAME-cert.pub beside one is its
	// certificate. A key with a passphrase is used only if Agent holds it.
	Identities []string
	// Certificates are additional certificates for those keys or the agent's keys.
	Certificates []string
	// Agent is the socket of an SSH agent (SSH_AUTH_SOCK); "" means none. Its keys are tried after
	// Identities.
	Agent string
	// IdentitiesOnly limits the agent to the keys in Identities.
	IdentitiesOnly bool

	// login is asked for the keys in their place, once the host asks for them; broken reports whether
	// it has left meanwhile. patience is how long that may take; 0 means HandshakeTimeout.
	login    func(broken func() bool) ([]xssh.Signer, error)
	patience time.Duration
}

func (h Hop) address() string { return net.JoinHostPort(h.Host, strconv.Itoa(h.Port)) }

// Config configures a target. Passwords are not supported: the bot would send one to any host that
// answers, and a password cannot be restricted like a key.
type Config struct {
	// Name is the target's name in the configuration, and part of its ID.
	Name string
	Hop
	// Jump lists the hosts to go through, nearest first (ProxyJump). Their host keys are checked
	// like the target's. A hop without a user or keys uses the target's.
	Jump []Hop
	// KnownHosts are known_hosts files, read for each connection; @cert-authority and @revoked are
	// honored. A missing file counts as empty.
	KnownHosts []string
	// Approved returns additional known hosts, as the text of a known_hosts file that contains only
	// what [Admit] and [Revoke] write. It is called for each connection, so that people's decisions
	// apply to the next one, whichever replica stored them; an error refuses the connection. nil
	// means that there are none. It must be safe for concurrent use.
	Approved func(ctx context.Context) ([]byte, error)

	DialTimeout      time.Duration // of a TCP connection to a host; 0 means 10 s
	HandshakeTimeout time.Duration // from there until the login; 0 means 20 s
	// Keepalive is how often an idle connection is probed; 0 means 15 s. After Misses (0 means 3)
	// unanswered probes it is closed.
	Keepalive time.Duration
	Misses    int
	// MaxChannels is how many programs share a connection before another one is opened; 0 means 6.
	// MaxConns bounds the connections; 0 means 4.
	MaxChannels, MaxConns int

	// Credentials get a certificate for each login, and for each approved command, which runs as RunAs;
	// the target has no other keys then. nil means that it logs in with Identities and Agent.
	Credentials Credentials
	RunAs       string

	Dir string           // absolute default directory; "" means the user's home
	Log *slog.Logger     // nil discards
	Now func() time.Time // nil means time.Now

	onlyLock    string // remote.Options.OnlyLock
	searchFirst string // remote.Options.SearchFirst
}

// hostName matches names that do not change the meaning of a known_hosts line.
var hostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.:%-]*[A-Za-z0-9_.])?$|^::1?$|^[0-9a-fA-F:.]+(%[A-Za-z0-9_.-]+)?$`)

func (h *Hop) check() error {
	h.Port = cmp.Or(h.Port, DefaultPort)
	switch {
	case h.Host == "":
		return errors.New("the host is missing; give its name or address")
	case !hostName.MatchString(h.Host):
		return fmt.Errorf("%q is no name of a host; give a name or an address alone", h.Host)
	case h.Port < 1 || h.Port > 65535:
		return fmt.Errorf("port %d does not exist; give one from 1 to 65535", h.Port)
	case h.User == "":
		return fmt.Errorf("no user is given for %s; say who logs in", h.Host)
	case len(h.Identities) == 0 && h.Agent == "" && h.login == nil:
		return fmt.Errorf("no key is given for %s; name an identity file or an agent's socket", h.Host)
	}
	return nil
}

// Target is one SSH host. It is safe for concurrent use.
type Target struct {
	*remote.Machine
	c     Config
	hops  []Hop // the hosts to go through, the target last
	log   *slog.Logger
	shell shellFiles
	// credential is nil if the target has keys.
	credential *credential

	life context.Context // ends with Close
	end  context.CancelFunc
	wg   sync.WaitGroup // the goroutines that own connections

	mu      sync.Mutex
	closed  bool
	pins    []xssh.PublicKey // host key of each hop, once known
	conns   []*conn
	dialing *dialing
	back    backoff
	changed chan struct{} // closed and replaced when a slot may have become free
	sftp    *sftpSession
	spare   *spare
	opening bool // a spare
	ready   *pendingLogin

	helloTime time.Duration // see helloTime; less in tests
}

var (
	_ backend.Target  = (*Target)(nil)
	_ backend.Witness = (*Target)(nil)
)

// shellFiles is the file system interface that the machine provides.
type shellFiles interface {
	backend.FileSystem
	backend.Replacer
	backend.Remover
	backend.Lister
	backend.Sieve
	backend.Surveyor
}

// New returns a target. It does not connect; its errors are configuration mistakes.
func New(c Config) (*Target, error) {
	if c.Name == "" {
		return nil, errors.New("ssh: the target has no name; give it one")
	}
	if c.Dir != "" && !path.IsAbs(c.Dir) {
		return nil, fmt.Errorf("ssh: target %s: the directory %q is not absolute; write it from the root", c.Name, c.Dir)
	}
	c.DialTimeout = cmp.Or(c.DialTimeout, DefaultDialTimeout)
	c.HandshakeTimeout = cmp.Or(c.HandshakeTimeout, DefaultHandshakeTimeout)
	c.Keepalive = cmp.Or(c.Keepalive, DefaultKeepalive)
	c.Misses = cmp.Or(c.Misses, DefaultMisses)
	c.MaxChannels = cmp.Or(c.MaxChannels, DefaultMaxChannels)
	c.MaxConns = cmp.Or(c.MaxConns, DefaultMaxConns)
	if c.DialTimeout < 0 || c.HandshakeTimeout < 0 || c.Keepalive < 0 || c.Misses < 0 || c.MaxChannels < 0 || c.MaxConns < 0 {
		return nil, fmt.Errorf("ssh: target %s: a timeout or limit is negative; leave it out for the default", c.Name)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	var cred *credential
	if c.Credentials != nil {
		var err error
		if cred, err = newCredential(c.Credentials, c.RunAs); err != nil {
			return nil, err
		}
		c.Identities, c.Certificates, c.Agent = nil, nil, ""
		c.login = func(func() bool) ([]xssh.Signer, error) { return nil, errors.New("ssh: a login without a certificate") }
	}
	hops := append(slices.Clone(c.Jump), c.Hop)
	for i := range hops {
		h := &hops[i]
		h.User = cmp.Or(h.User, c.User)
		if len(h.Identities) == 0 && h.Agent == "" {
			h.Identities, h.Certificates, h.Agent, h.IdentitiesOnly = c.Identities, c.Certificates, c.Agent, c.IdentitiesOnly
		}
		if err := h.check(); err != nil {
			return nil, fmt.Errorf("ssh: target %s: %w", c.Name, err)
		}
	}
	t := &Target{
		c: c, hops: hops, log: c.Log.With("target", c.Name),
		credential: cred, pins: make([]xssh.PublicKey, len(hops)), changed: make(chan struct{}), helloTime: helloTime,
	}
	t.life, t.end = context.WithCancel(context.Background())
	t.Machine = remote.New(remote.Options{Transport: transport{t}, Name: c.Name, Dir: c.Dir, OnlyLock: c.onlyLock, SearchFirst: c.searchFirst})
	shell, ok := t.Machine.FS().(shellFiles)
	if !ok {
		return nil, errors.New("ssh: the machine's file system lacks Replace or StatAll")
	}
	t.shell = shell
	return t, nil
}

// ID returns "ssh:NAME", and "ssh:NAME#SHA256:..." once the host's key is known, after the first
// connection. From then on it does not change: a host that presents another key is refused, even if
// known_hosts lists that key too.
func (t *Target) ID() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := "ssh:" + t.c.Name
	if pin := t.pins[len(t.pins)-1]; pin != nil {
		id += "#" + xssh.FingerprintSHA256(plainKey(pin))
	}
	return id
}

// FS gives access to the host's files. Reads use SFTP if the host has it. Everything else uses
// small scripts, which can identify files ("dev:inode") and write without ever exposing a file to
// other users.
func (t *Target) FS() backend.FileSystem { return files{t.shell, t} }

// Close closes the connections and cancels what waits for one. Programs on the host that hold no
// channel, like a tmux server, keep running.
func (t *Target) Close() error {
	t.Machine.Close()
	t.mu.Lock()
	t.closed = true
	conns := slices.Clone(t.conns)
	t.broadcast()
	t.mu.Unlock()
	t.end()
	for _, c := range conns {
		c.close(errClosed)
	}
	t.wg.Wait()
	return nil
}

// errClosed is wrapped by errors after Close.
var errClosed = fmt.Errorf("ssh: the target was closed: %w", os.ErrClosed)
