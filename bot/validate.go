package bot

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"

	"countersign/bot/console"
	"countersign/bot/machines"
	"countersign/bot/toolbox"
	"countersign/config"
	"countersign/config/rules"
	"countersign/console/tlsfile"
	"countersign/tools/hostkey"
)

// Validate refuses an environment and a file that no bot can be built from, on whatever
// machine. It opens, starts and connects nothing. What [config.ReadFile] checks is not
// checked again.
func Validate(e config.Env, f config.File) error {
	log, err := e.Logger(io.Discard)
	if err != nil {
		return err
	}
	if e.SSHAuthSock == "" {
		e.SSHAuthSock = os.DevNull // an agent is a matter of the machine
	}
	if _, err := toolbox.ServerConfig(f, func(string) (string, bool) { return "", true }); err != nil {
		return err
	}
	for i, p := range f.Tools.Plugins {
		if _, err := toolbox.Levels(fmt.Sprintf("tools.plugins[%d].levels", i), p.Levels); err != nil {
			return err
		}
	}
	known := f
	known.Targets = maps.Clone(f.Targets)
	maps.DeleteFunc(known.Targets, func(_ string, t config.TargetConfig) bool { return t.SSHConfig != "" }) // likewise
	if e.OpenAIKey != "" || e.OpenAIBaseURL != "" {
		if _, err := Model(e, f, nil, log); err != nil {
			return err
		}
	}
	all, err := machines.NewSet(&machines.Options{Env: e, File: known, Log: log, Keys: hostkey.InFile(os.DevNull)})
	if err != nil {
		return err
	}
	_, err = preview(e, known, all, log)
	return err
}

// preview returns the toolbox of a bot that is not built. It offers nothing if there are
// plugins or servers: which tools those have is known once they run.
func preview(e config.Env, f config.File, all machines.Set, log *slog.Logger) (*toolbox.Toolbox, error) {
	r, err := rules.New(f)
	if err != nil {
		return nil, err
	}
	box, err := toolbox.Preview(e, f, r, all, log)
	if err != nil {
		return nil, err
	}
	own, err := box.Base()
	if err != nil || len(f.Tools.Plugins)+len(f.MCP) > 0 {
		return box, err
	}
	return box, box.Offer(own)
}

// ValidateHere refuses what only this machine lacks: keys, certificates, secrets and a
// model.
func ValidateHere(e config.Env, f config.File) error {
	log := slog.New(slog.DiscardHandler)
	if _, err := machines.NewSet(&machines.Options{Env: e, File: f, Log: log, Keys: hostkey.InFile(os.DevNull)}); err != nil {
		return err
	}
	if _, err := toolbox.ServerConfig(f, os.LookupEnv); err != nil {
		return err
	}
	if len(f.Alerts.Hooks) > 0 {
		if _, err := alertSecrets(f); err != nil {
			return err
		}
	}
	if c := f.Web.TLS; c.Cert != "" {
		if _, err := tlsfile.Config(c.Cert, c.Key, log); err != nil {
			return config.Errorf("%v", err)
		}
	}
	_, err := Model(e, f, nil, log)
	return err
}

// ValidateServing refuses what only a bot that serves needs.
func ValidateServing(e config.Env, f config.File) error {
	if f.Web.OIDC.Issuer != "" {
		if _, err := console.IdentityProvider(f.Web.OIDC, e.OIDCSecret, slog.New(slog.DiscardHandler), nil); err != nil {
			return err
		}
	}
	return e.CheckNetworks(f)
}
