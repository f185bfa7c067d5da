package config

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/kelseyhightower/envconfig"

	"countersign/adapters/chat/network"
	"countersign/internal/redact"
)

// Env is the environment that the bot reads. Names that the ecosystem already
// has are used as they are. Every secret can also come from a file: NAME_FILE.
type Env struct {
	SlackBotToken      redact.Secret     `envconfig:"SLACK_BOT_TOKEN"`
	SlackAppToken      redact.Secret     `envconfig:"SLACK_APP_TOKEN"`
	SlackSigningSecret redact.Secret     `envconfig:"SLACK_SIGNING_SECRET"`
	SlackAPIURL        string            `envconfig:"SLACK_API_URL"`
	DiscordBotToken    redact.Secret     `envconfig:"DISCORD_BOT_TOKEN"`
	DiscordAPIURL      string            `envconfig:"DISCORD_API_URL"`
	OpenAIKey          redact.Secret     `envconfig:"OPENAI_API_KEY"`
	OpenAIBaseURL      string            `envconfig:"OPENAI_BASE_URL"`
	OpenAIModel        string            `envconfig:"OPENAI_MODEL"`
	ModelAPI           string            `envconfig:"COUNTERSIGN_MODEL_API" default:"auto"`
	ModelHeaders       map[string]string `envconfig:"-"`
	Config             string            `envconfig:"COUNTERSIGN_CONFIG"`
	DataDir            string            `envconfig:"COUNTERSIGN_DATA_DIR"`
	Listen             string            `envconfig:"COUNTERSIGN_LISTEN"`
	Instance           string            `envconfig:"COUNTERSIGN_INSTANCE" default:"bot"`
	LogLevel           string            `envconfig:"COUNTERSIGN_LOG_LEVEL" default:"info"`
	LogFormat          string            `envconfig:"COUNTERSIGN_LOG_FORMAT" default:"text"`
	TavilyKey          redact.Secret     `envconfig:"TAVILY_API_KEY"`
	TavilyURL          string            `envconfig:"TAVILY_BASE_URL"`
	OTLPHeaders        redact.Secret     `envconfig:"OTEL_EXPORTER_OTLP_HEADERS"`
	OIDCSecret         redact.Secret     `envconfig:"OIDC_CLIENT_SECRET"`
	Store              redact.Secret     `envconfig:"COUNTERSIGN_STORE"`
	SSHAuthSock        string            `envconfig:"SSH_AUTH_SOCK"`
	DockerHost         string            `envconfig:"DOCKER_HOST"`
	RuntimeDir         string            `envconfig:"XDG_RUNTIME_DIR"`
	TmuxDir            string            `envconfig:"TMUX_TMPDIR"`
	Path               string            `envconfig:"PATH"`
}

// SecretNames are the variables of Env that NAME_FILE works for; see
// [File.variables] for those that the configuration names.
var SecretNames = append(networkSecrets(network.All()), "OPENAI_API_KEY", "TAVILY_API_KEY",
	"COUNTERSIGN_MODEL_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS", oidcSecretName, StoreName)

func networkSecrets(of []network.Network) (out []string) {
	for _, n := range of {
		out = append(out, n.Secrets()...)
	}
	return out
}

// oidcSecretName is the variable of the secret that web.oidc.client_id has.
const oidcSecretName = "OIDC_CLIENT_SECRET" //nolint:gosec // the name, not the secret

var instanceName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,23}$`)

// ReadEnv reads the environment. A secret NAME can come from the file that NAME_FILE
// names: it is then set in the environment of the process.
func ReadEnv() (Env, error) {
	var e Env
	if err := fromFiles(SecretNames); err != nil {
		return e, err
	}
	if err := envconfig.Process("", &e); err != nil {
		return e, Errorf("the environment cannot be read: %v", err)
	}
	headers, err := parseHeaders(os.Getenv("COUNTERSIGN_MODEL_HEADERS"))
	if err != nil {
		return e, err
	}
	e.ModelHeaders = headers
	if !instanceName.MatchString(e.Instance) {
		return e, Errorf("COUNTERSIGN_INSTANCE is %q; use at most 24 lower-case letters, digits, - and _", e.Instance)
	}
	if e.DataDir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return e, Errorf("COUNTERSIGN_DATA_DIR is not set and there is no home directory; set it to a directory that the bot may write")
		}
		e.DataDir = filepath.Join(home, ".local", "share", "countersign", e.Instance)
	}
	return e, nil
}

// Stray is a variable that nothing reads.
type Stray struct {
	Name string
	Near string // the name that may have been meant, or ""
}

// Value returns a variable of the environment: what was read at the start, for those that Env has.
func (e Env) Value(name string) string {
	for field, v := range reflect.ValueOf(e).Fields() {
		if field.Tag.Get("envconfig") == name {
			return v.String()
		}
	}
	value, _ := LookupSecret(name)
	return value
}

// Opens reports whether the environment has the token of a network.
func (e Env) Opens(n network.Network) bool { return n.Token != "" && e.Value(n.Token) != "" }

// Strays are the variables of an environment (as in [os.Environ]) whose names begin as the bot's
// own do, and that neither the bot nor the configuration reads. What Kubernetes sets for a service
// of that name is none.
func Strays(f File, environ []string) []Stray {
	known := slices.Concat(f.variables(), SecretNames, []string{"COUNTERSIGN_POD_NAME", "COUNTERSIGN_FAILPOINT", "COUNTERSIGN_URL", "COUNTERSIGN_TOKEN"})
	for field := range reflect.TypeFor[Env]().Fields() {
		known = append(known, field.Tag.Get("envconfig"))
	}
	for _, name := range slices.Concat(f.variables(), SecretNames) {
		known = append(known, name+"_FILE")
	}
	var out []Stray
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, "COUNTERSIGN_") && !slices.Contains(known, name) && !service.MatchString(name) {
			out = append(out, Stray{name, nearest(name, known)})
		}
	}
	return out
}

// service is what Kubernetes names the variables of a service
// (kubernetes.io/docs/concepts/services-networking/service, "Environment variables").
var service = regexp.MustCompile(`_(SERVICE_(HOST|PORT.*)|PORT|PORT_[0-9]+_.*)$`)

// fromFiles sets each variable NAME from the file that NAME_FILE names; the file
// wins. Programs that the bot starts get neither, unless the configuration says so.
func fromFiles(names []string) error {
	for _, name := range names {
		path := os.Getenv(name + "_FILE")
		if path == "" {
			continue
		}
		b, err := os.ReadFile(path) //nolint:gosec // the operator names the file
		if err != nil {
			return Errorf("%s_FILE cannot be read (%v); name a readable file or unset it", name, err)
		}
		if err := os.Setenv(name, strings.TrimSpace(string(b))); err != nil {
			return Errorf("%s_FILE holds a value that cannot be used: %v", name, err)
		}
	}
	return nil
}

// LookupSecret is a variable's value as it is now: what the file that NAME_FILE names holds, or else the
// variable of the environment.
func LookupSecret(name string) (string, bool) {
	if path := os.Getenv(name + "_FILE"); path != "" {
		b, err := os.ReadFile(path) //nolint:gosec // the operator names it
		return strings.TrimSpace(string(b)), err == nil
	}
	return os.LookupEnv(name)
}

// SecretSource names where a variable's value comes from, for people.
func SecretSource(name string) string {
	if os.Getenv(name+"_FILE") != "" {
		return "the file of " + name + "_FILE"
	}
	return name
}

// ReadSecrets puts the secrets that the configuration names and that come from files into the environment of
// the process.
func (f File) ReadSecrets() error { return fromFiles(f.variables()) }

func parseHeaders(s string) (map[string]string, error) {
	out := map[string]string{}
	for kv := range strings.SplitSeq(s, ",") {
		if strings.TrimSpace(kv) == "" {
			continue
		}
		k, v, ok := strings.Cut(kv, "=")
		if !ok || strings.TrimSpace(k) == "" {
			return nil, Errorf("COUNTERSIGN_MODEL_HEADERS has %q; write it as name=value,name=value", strings.TrimSpace(kv))
		}
		out[strings.TrimSpace(k)] = strings.TrimSpace(v)
	}
	return out, nil
}

// StoreName is the variable that names a PostgreSQL database; without it the store is
// a file of the data directory.
const StoreName = "COUNTERSIGN_STORE"

// Shared reports whether several replicas can use the store.
func (e Env) Shared() bool { return e.Store != "" }

// CheckNetworks refuses tokens without what they need beside them.
func (e Env) CheckNetworks(f File) error {
	for _, n := range f.Networks() {
		if !e.Opens(n) && slices.ContainsFunc(n.Beside, func(name string) bool { return e.Value(name) != "" }) {
			return Errorf("%s is set without %s; set that too, or unset them", strings.Join(n.Beside, " or "), n.Token)
		}
	}
	if e.DiscordBotToken != "" && len(f.Discord.Guilds) == 0 {
		return Errorf("DISCORD_BOT_TOKEN is set, and the configuration names no server; add discord: {guilds: [ID]} (in Discord: right-click " +
			"the server, Copy Server ID)")
	}
	return nil
}

// KnownHosts is the file of the host keys that people approved, where one bot has the store
// to itself.
func (e Env) KnownHosts() string { return filepath.Join(e.DataDir, "known_hosts") }
