package main

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"

	"countersign/bot/machines"
	"countersign/internal/config"
	"countersign/internal/rules"

	"countersign/adapters/web/tlsfile"
	"countersign/agent/role"
	"countersign/agent/workflow"
	"countersign/internal/redact"
	"countersign/tools/hostkey"
	"countersign/tools/output"
)

// validate refuses an environment and a file that no bot can be built from, on whatever
// machine. It opens, starts and connects nothing. What readFile checks is not checked again.
func validate(e config.Env, f config.File) error {
	log, err := newLog(e, io.Discard)
	if err != nil {
		return err
	}
	r, err := rules.New(f)
	if err != nil {
		return err
	}
	if e.SSHAuthSock == "" {
		e.SSHAuthSock = os.DevNull // an agent is a matter of the machine
	}
	b := &bot{env: e, file: f, log: log, outputs: output.New(output.Config{Dir: os.DevNull, Log: log}), redact: redact.New().Redact}
	b.rules.Store(r)
	if b.mcp, err = serverConfig(f, func(string) (string, bool) { return "", true }); err != nil {
		return err
	}
	for i, p := range f.Tools.Plugins {
		if _, err := levelsOf(fmt.Sprintf("tools.plugins[%d].levels", i), p.Levels); err != nil {
			return err
		}
	}
	b.file.Targets = maps.Clone(f.Targets)
	maps.DeleteFunc(b.file.Targets, func(_ string, t config.TargetConfig) bool { return t.SSHConfig != "" }) // likewise
	if b.machines, err = machines.NewSet(&machines.Options{Env: e, File: b.file, Log: log, Keys: hostkey.InFile(os.DevNull)}); err != nil {
		return err
	}
	if b.roles, err = role.New(role.Config{Roles: f.Roles, SubAgents: f.SubAgents}); err != nil {
		return config.Errorf("%v", err)
	}
	if b.library, err = workflow.Load(f.Workflows.Dirs, f.Workflows.Inline); err != nil {
		return config.Errorf("%v", err)
	}
	if e.OpenAIKey != "" || e.OpenAIBaseURL != "" {
		if _, err := b.model(); err != nil {
			return err
		}
	}
	base, err := b.base()
	if err != nil || len(f.Tools.Plugins)+len(f.MCP) > 0 {
		return err // which tools plugins and servers have is known once they run
	}
	return b.offer(base)
}

// validateHere refuses what only this machine lacks: keys, certificates, secrets and a
// model.
func validateHere(e config.Env, f config.File) error {
	b := &bot{env: e, file: f, log: slog.New(slog.DiscardHandler)}
	if _, err := machines.NewSet(&machines.Options{Env: e, File: f, Log: b.log, Keys: hostkey.InFile(os.DevNull)}); err != nil {
		return err
	}
	if _, err := serverConfig(f, os.LookupEnv); err != nil {
		return err
	}
	if len(f.Alerts.Hooks) > 0 {
		if _, err := alertSecrets(f); err != nil {
			return err
		}
	}
	if c := f.Web.TLS; c.Cert != "" {
		if _, err := tlsfile.Config(c.Cert, c.Key, b.log); err != nil {
			return config.Errorf("%v", err)
		}
	}
	_, err := b.model()
	return err
}

// validateRun refuses what only a bot that serves needs.
func validateRun(e config.Env, f config.File) error {
	if f.Web.OIDC.Issuer != "" {
		b := &bot{env: e, file: f, log: slog.New(slog.DiscardHandler)}
		if _, err := b.identityProvider(); err != nil {
			return err
		}
	}
	return e.CheckNetworks(f)
}
