package ssh

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kevinburke/ssh_config"
)

// Import reads what an ssh_config file says about a host, as ssh_config(5) has it:
// HostName, Port, User, IdentityFile, IdentitiesOnly, CertificateFile, IdentityAgent,
// ProxyJump (whose hosts are looked up in the same file), UserKnownHostsFile,
// GlobalKnownHostsFile, ConnectTimeout, ServerAliveInterval and ServerAliveCountMax,
// with ssh's defaults, Include, and the tokens %% %d %h %n %p %r %u.
//
// A Match block that may be about the host and would change its connection, and any option
// for the host that would change how the connection is made or judged and is not in that
// list, is an error that names the line: leaving it out silently could lead to another
// host, or to the right one in a weaker way.
// Options that only matter to a person's terminal are ignored.
// StrictHostKeyChecking is, too: this package is always strict.
//
// The Config has no Name but the host's; limits and Log are the caller's.
func Import(path, host string) (Config, error) {
	u, err := user.Current()
	if err != nil {
		return Config{}, fmt.Errorf("ssh: the user of the bot has no account, so an ssh_config cannot be read: %w", err)
	}
	return importer{home: u.HomeDir, user: u.Username, getenv: os.Getenv}.file(path, host)
}

// importer is the surroundings that an ssh_config refers to.
type importer struct {
	home, user string
	getenv     func(string) string
	matches    []match // the Match blocks of the file that is read
}

// understood are the options that become part of a Config.
var understood = words(`hostname port user identityfile identitiesonly certificatefile identityagent proxyjump
	userknownhostsfile globalknownhostsfile connecttimeout serveraliveinterval serveralivecountmax`)

// harmless are the options that change nothing here: for a terminal, for forwarding
// that is never done, for a login or trust that is never tried or given, or for speed.
var harmless = words(`host include addkeystoagent batchmode checkhostip clearallforwardings compression connectionattempts
	controlmaster controlpath controlpersist dynamicforward enableescapecommandline escapechar exitonforwardfailure
	fingerprinthash forkafterauthentication forwardagent forwardx11 forwardx11timeout forwardx11trusted gatewayports
	gssapiauthentication gssapidelegatecredentials gssapikeyexchange gssapikexalgorithms match
	hashknownhosts ignoreunknown ipqos localcommand localforward loglevel logverbose nohostauthenticationforlocalhost
	numberofpasswordprompts passwordauthentication kbdinteractiveauthentication challengeresponseauthentication
	permitlocalcommand permitremoteopen rekeylimit remoteforward requesttty sendenv setenv stdinnull
	streamlocalbindmask streamlocalbindunlink stricthostkeychecking syslogfacility tag tcpkeepalive updatehostkeys
	usekeychain verifyhostkeydns versionaddendum visualhostkey xauthlocation`)

// inert are options that change nothing with one of these values.
var inert = map[string][]string{
	"proxycommand": {"none"}, "canonicalizehostname": {"no"}, "addressfamily": {"any"}, "pubkeyauthentication": {"yes"},
	"hostbasedauthentication": {"no"}, "tunnel": {"no"}, "proxyusefdpass": {"no"}, "pkcs11provider": {"none"},
	"sessiontype": {"default"}, "remotecommand": {"none"}, "knownhostscommand": {"none"}, "revokedhostkeys": {"none"},
}

func words(s string) []string { return strings.Fields(s) }

// setting is one line of an ssh_config.
type setting struct {
	where string // file:line
	key   string // in lower case
	value string
}

// includeDepth is how deep ssh_config files may include others, as in the library.
const includeDepth = 5

// scan lists the settings of a file and of those that it includes, whatever host
// they are for.
func (im importer) scan(path string, depth int) ([]setting, error) {
	if depth > includeDepth {
		return nil, fmt.Errorf("ssh: %s is included too deeply; does it include itself", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("ssh: the ssh_config cannot be read; check its path: %w", err)
	}
	var out []setting
	for _, s := range settings(path, string(text)) {
		out = append(out, s)
		if s.key != "include" {
			continue
		}
		files, err := im.included(s)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			more, err := im.scan(f, depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, more...)
		}
	}
	return out, nil
}

// settings splits the text of an ssh_config into its lines: a keyword, then blanks or
// one "=", then the rest.
func settings(path, text string) []setting {
	var out []setting
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.Trim(line, " \t\r\n")
		if line == "" || line[0] == '#' {
			continue
		}
		end := strings.IndexAny(line, " \t=")
		if end < 0 {
			end = len(line)
		}
		value := strings.TrimLeft(line[end:], " \t")
		value = strings.TrimLeft(strings.TrimPrefix(value, "="), " \t")
		out = append(out, setting{fmt.Sprintf("%s:%d", path, n), strings.ToLower(line[:end]), value})
	}
	return out
}

func (im importer) file(path, host string) (Config, error) {
	all, err := im.scan(path, 0)
	if err != nil {
		return Config{}, err
	}
	for _, s := range all {
		if s.key == "" || strings.ContainsFunc(s.key, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }) {
			return Config{}, fmt.Errorf("ssh: %s: the line begins with no keyword; write it without quotes or signs", s.where)
		}
		if s.key == "host" && strings.ContainsAny(s.value, "\"'\\") {
			return Config{}, fmt.Errorf("ssh: %s: a Host with quotes is not supported; write it without", s.where)
		}
		// The library ends every value at "#", ssh only where a word begins with it.
		if n := strings.IndexByte(s.value, '#'); n > 0 && (!strings.ContainsRune(" \t", rune(s.value[n-1])) || strings.Count(s.value[:n], `"`)%2 == 1) {
			return Config{}, fmt.Errorf("ssh: %s: a value with # in it is not supported; write it without", s.where)
		}
	}
	var text string
	if text, im.matches, err = im.flat(path, 0); err != nil {
		return Config{}, err
	}
	cfg, err := ssh_config.DecodeBytes([]byte(text))
	if err != nil {
		return Config{}, fmt.Errorf("ssh: %s is no ssh_config; correct it: %w", path, err)
	}
	c, jumps, err := im.host(cfg, all, host)
	if err != nil {
		return Config{}, err
	}
	c.Jump, err = im.jumps(cfg, all, jumps, 0)
	return c, err
}

// where finds the line of a setting, for people.
func where(all []setting, key, value string) string {
	for _, s := range all {
		if s.key == key && strings.Trim(s.value, `"`) == value {
			return s.where
		}
	}
	for _, s := range all {
		if s.key == key {
			return s.where
		}
	}
	return "ssh_config"
}

// host makes the part of a Config that is about one host, and returns its ProxyJump.
func (im importer) host(cfg *ssh_config.Config, all []setting, alias string) (c Config, jump string, err error) {
	var failed error
	as := []string{alias} // the names that blocks are looked up by
	every := func(key string) (values []string) {
		for _, name := range as {
			more, err := cfg.GetAll(name, key)
			failed = errors.Join(failed, err)
			for _, v := range more {
				if !slices.Contains(values, v) {
					values = append(values, v)
				}
			}
		}
		return values
	}
	get := func(key string) string {
		if v := every(key); len(v) > 0 {
			return v[0]
		}
		return ""
	}
	bad := func(key, value, what string) error {
		return fmt.Errorf("ssh: %s: %s %q is not understood; %s", where(all, key, value), key, value, what)
	}

	c = Config{Name: alias, Hop: Hop{Port: DefaultPort}}
	c.Host = alias
	if v := get("hostname"); v != "" {
		// In HostName, %h is what was asked for.
		if c.Host, err = im.expand(v, map[byte]string{'h': alias, 'n': alias}); err != nil {
			return c, "", bad("hostname", v, err.Error())
		}
	}
	if c.Host != alias && slices.ContainsFunc(im.matches, match.isFinal) {
		as = append(as, c.Host) // ssh reads the file once more, for that host
	}
	var seen []string
	for _, s := range all {
		if slices.Contains(seen, s.key) || slices.Contains(understood, s.key) || slices.Contains(harmless, s.key) || isPolicy(s) {
			continue
		}
		seen = append(seen, s.key)
		v := get(s.key)
		if v == "" || slices.Contains(inert[s.key], strings.ToLower(v)) {
			continue
		}
		instead := "remove it, or name the host without ssh_config"
		if s.key == "proxycommand" {
			instead = "use ProxyJump, or a forwarder that listens on this machine (aws ssm start-session with AWS-StartPortForwardingSession, " +
				"cloudflared access tcp, gcloud compute start-iap-tunnel) with its address and port as the host"
		}
		return c, "", fmt.Errorf("ssh: %s: %s is not supported and would change how %s is connected to; %s", where(all, s.key, v), s.key, alias, instead)
	}
	for _, m := range im.matches {
		if m.matters() && m.mayHold(alias, c.Host) {
			return c, "", fmt.Errorf("ssh: %s: Match may be about %s, and is not understood; write the hosts that are needed into a file without it", m.where, alias)
		}
	}
	if v := get("port"); v != "" {
		if c.Port, err = strconv.Atoi(v); err != nil || c.Port < 1 || c.Port > 65535 {
			return c, "", bad("port", v, "give a number from 1 to 65535")
		}
	}
	c.User = im.user
	if v := get("user"); v != "" {
		c.User = v
	}
	tokens := map[byte]string{
		'h': c.Host, 'n': alias, 'p': strconv.Itoa(c.Port), 'r': c.User, 'u': im.user, 'd': im.home,
	}
	paths := func(key string, values []string) ([]string, error) {
		var out []string
		for _, v := range values {
			if strings.EqualFold(v, "none") {
				continue
			}
			p, err := im.path(v, tokens)
			if err != nil {
				return nil, bad(key, v, err.Error())
			}
			out = append(out, p)
		}
		return out, nil
	}
	identities := every("identityfile")
	if c.Identities, err = paths("identityfile", identities); err != nil {
		return c, "", err
	}
	if len(identities) == 0 {
		for _, name := range []string{"id_rsa", "id_ecdsa", "id_ed25519"} { // in ssh's order
			if p := filepath.Join(im.home, ".ssh", name); exists(p) {
				c.Identities = append(c.Identities, p)
			}
		}
	}
	if c.Certificates, err = paths("certificatefile", every("certificatefile")); err != nil {
		return c, "", err
	}
	if c.IdentitiesOnly, err = yes(get("identitiesonly")); err != nil {
		return c, "", bad("identitiesonly", get("identitiesonly"), err.Error())
	}
	switch v := get("identityagent"); {
	case v == "" || v == "SSH_AUTH_SOCK":
		c.Agent = im.getenv("SSH_AUTH_SOCK")
	case strings.EqualFold(v, "none"):
	case strings.HasPrefix(v, "$"):
		c.Agent = im.getenv(strings.Trim(v[1:], "{}"))
	default:
		if c.Agent, err = im.path(v, tokens); err != nil {
			return c, "", bad("identityagent", v, err.Error())
		}
	}
	for _, f := range []struct{ key, def string }{
		{"userknownhostsfile", "~/.ssh/known_hosts ~/.ssh/known_hosts2"},
		{"globalknownhostsfile", "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"},
	} {
		v := get(f.key)
		if v == "" {
			v = f.def
		}
		list, err := paths(f.key, fields(v))
		if err != nil {
			return c, "", err
		}
		c.KnownHosts = append(c.KnownHosts, list...)
	}
	for _, f := range []struct {
		key  string
		into *time.Duration
	}{{"connecttimeout", &c.DialTimeout}, {"serveraliveinterval", &c.Keepalive}} {
		v := get(f.key)
		if v == "" || strings.EqualFold(v, "none") {
			continue
		}
		d, ok := seconds(v)
		if !ok {
			return c, "", bad(f.key, v, "give a number of seconds")
		}
		*f.into = d // 0 is our default: a link is never left unwatched
	}
	if v := get("serveralivecountmax"); v != "" {
		if c.Misses, err = strconv.Atoi(v); err != nil || c.Misses < 0 {
			return c, "", bad("serveralivecountmax", v, "give a number")
		}
	}
	jump = get("proxyjump")
	if strings.EqualFold(jump, "none") {
		jump = ""
	}
	if jump, err = im.expand(jump, tokens); err != nil {
		return c, "", bad("proxyjump", get("proxyjump"), err.Error())
	}
	if failed != nil {
		return c, "", fmt.Errorf("ssh: the ssh_config cannot be understood; correct it: %w", failed)
	}
	return c, jump, nil
}

// jumpDepth is how many hosts of a way may have a ProxyJump of their own.
const jumpDepth = 8

// jumps makes the way of a ProxyJump value. The first host's own ProxyJump comes
// before it; those of the others have no meaning, as in ssh.
func (im importer) jumps(cfg *ssh_config.Config, all []setting, value string, depth int) ([]Hop, error) {
	if value == "" {
		return nil, nil
	}
	if depth > jumpDepth {
		return nil, fmt.Errorf("ssh: %s: ProxyJump goes in a circle; correct it", where(all, "proxyjump", value))
	}
	var out []Hop
	for i, text := range strings.Split(value, ",") {
		name, host, port, err := parseJump(text)
		if err != nil {
			return nil, fmt.Errorf("ssh: %s: %w", where(all, "proxyjump", value), err)
		}
		c, before, err := im.host(cfg, all, host)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			first, err := im.jumps(cfg, all, before, depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, first...)
		}
		if name != "" {
			c.User = name
		}
		if port != 0 {
			c.Port = port
		}
		out = append(out, c.Hop)
	}
	return out, nil
}

// parseJump reads one host of a ProxyJump: [user@]host[:port] or a URI
// ssh://[user@]host[:port], with an IPv6 address in brackets.
func parseJump(text string) (name, host string, port int, err error) {
	wrong := fmt.Errorf("the jump host %q is not understood; write user@host:port", text)
	rest := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(text), "ssh://"), "/")
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		name, rest = rest[:at], rest[at+1:]
		if name == "" {
			return "", "", 0, wrong
		}
	}
	digits := ""
	if inner, ok := strings.CutPrefix(rest, "["); ok {
		host, digits, ok = strings.Cut(inner, "]")
		if !ok || (digits != "" && digits[0] != ':') || digits == ":" {
			return "", "", 0, wrong
		}
		digits = strings.TrimPrefix(digits, ":")
	} else if strings.Count(rest, ":") > 1 { // an address without brackets
		host = rest
	} else {
		var colon bool
		host, digits, colon = strings.Cut(rest, ":")
		if colon && digits == "" {
			return "", "", 0, wrong
		}
	}
	if digits != "" {
		if port, err = strconv.Atoi(digits); err != nil || port < 1 || port > 65535 {
			return "", "", 0, wrong
		}
	}
	if !hostName.MatchString(host) {
		return "", "", 0, wrong
	}
	return name, host, port, nil
}

// expand replaces tokens. One that is not known is an error.
func (im importer) expand(s string, tokens map[byte]string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		i++
		if i == len(s) {
			return "", errors.New("it ends with %; write %%")
		}
		if s[i] == '%' {
			b.WriteByte('%')
			continue
		}
		v, ok := tokens[s[i]]
		if !ok {
			return "", fmt.Errorf("the token %%%c is not supported; write it out", s[i])
		}
		b.WriteString(v)
	}
	return b.String(), nil
}

// path expands a file name.
func (im importer) path(s string, tokens map[byte]string) (string, error) {
	if strings.Contains(s, "${") {
		return "", errors.New("environment variables are not supported here; write it out")
	}
	switch {
	case s == "~":
		s = "%d"
	case strings.HasPrefix(s, "~/"):
		s = "%d" + s[1:]
	case strings.HasPrefix(s, "~"):
		return "", errors.New("another user's home is not supported; write it out")
	}
	with := map[byte]string{'d': im.home}
	maps.Copy(with, tokens)
	return im.expand(s, with)
}

// fields splits a list of file names, which may stand in double quotes.
func fields(s string) []string {
	var out []string
	for s = strings.TrimLeft(s, " \t"); s != ""; s = strings.TrimLeft(s, " \t") {
		var f string
		if s[0] == '"' {
			f, s, _ = strings.Cut(s[1:], `"`)
		} else if n := strings.IndexAny(s, " \t"); n >= 0 {
			f, s = s[:n], s[n:]
		} else {
			f, s = s, ""
		}
		if f != "" {
			out = append(out, f)
		}
	}
	return out
}

// seconds reads a time of ssh_config: seconds, or numbers with s, m, h, d or w
// (sshd_config(5), TIME FORMATS).
func seconds(s string) (time.Duration, bool) {
	const most = 1 << 30
	units := map[byte]int{'s': 1, 'm': 60, 'h': 3600, 'd': 86400, 'w': 604800}
	total := 0
	for s != "" {
		n := 0
		for n < len(s) && s[n] >= '0' && s[n] <= '9' {
			n++
		}
		v, err := strconv.Atoi(s[:n])
		if err != nil || v > most {
			return 0, false
		}
		unit := 1
		if n < len(s) {
			var ok bool
			if unit, ok = units[s[n]|0x20]; !ok {
				return 0, false
			}
			n++
		}
		if total += v * unit; total > most {
			return 0, false
		}
		s = s[n:]
	}
	return time.Duration(total) * time.Second, true
}

func yes(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "yes", "true":
		return true, nil
	case "", "no", "false":
		return false, nil
	}
	return false, errors.New("write yes or no")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// Aliases are the hosts that an ssh_config file names, in its order, without patterns and without
// those of files that it includes. No file is none.
func Aliases(path string) ([]string, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ssh: the file %s can't be read: %w", path, err)
	}
	defer func() { _ = f.Close() }()
	cfg, err := ssh_config.Decode(f)
	if err != nil {
		return nil, fmt.Errorf("ssh: the file %s can't be read: %w", path, err)
	}
	var out []string
	for _, h := range cfg.Hosts {
		for _, p := range h.Patterns {
			if s := p.String(); !strings.ContainsAny(s, "*?!") && !slices.Contains(out, s) {
				out = append(out, s)
			}
		}
	}
	return out, nil
}
