package bot

import (
	"context"
	"fmt"
	"io"
	"os"

	"countersign/bot/machines"
	"countersign/bot/replicas"
	"countersign/bot/toolbox"
	"countersign/config"
	"countersign/store/mem"
	"countersign/tools/code"
	"countersign/tools/hostkey"
)

// Catalogue returns what a bot of this process's configuration, as change leaves it, would
// offer, to be read: none of its tools works. Plugins and MCP servers are started to say what
// they have; done ends them.
func Catalogue(ctx context.Context, stderr io.Writer, o Options, change func(*config.Env, *config.File) error) (*toolbox.Toolbox, func(), error) {
	e, f, err := config.Read()
	if err == nil {
		err = change(&e, &f)
	}
	if err != nil {
		return nil, nil, err
	}
	if len(f.Tools.Plugins)+len(f.MCP) > 0 {
		b, done, err := Scratch(ctx, stderr, o, change)
		if err != nil {
			return nil, nil, err
		}
		return b.Toolbox(), done, nil
	}
	log, err := e.Logger(stderr)
	if err != nil {
		return nil, nil, err
	}
	db := mem.Open()
	all, err := machines.NewSet(&machines.Options{
		Env: e, File: f, Log: log, Keys: hostkey.InFile(os.DevNull), DB: db, Replicas: replicas.Alone(e.Instance, 0, db),
		Parser: o.Parser, Indexes: code.NewCache(), Untried: true,
	})
	if err == nil {
		err = all.ConnectLocal(ctx) // which tools there are depends on what is installed here
	}
	if err != nil {
		return nil, nil, err
	}
	box, err := preview(e, f, all, log)
	return box, func() { all.Close() }, err
}

// Scratch builds a bot over a throw-away data directory, from the configuration of this
// process as change leaves it: commands of one call must not fight a running bot for its
// store. It asks no model. done ends it and removes the directory.
func Scratch(ctx context.Context, stderr io.Writer, o Options, change func(*config.Env, *config.File) error) (*Bot, func(), error) {
	e, f, err := config.Read()
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "countersign-")
	if err != nil {
		return nil, nil, fmt.Errorf("a temporary directory cannot be made (%w); set TMPDIR to a directory that you may write", err)
	}
	remove := func() { _ = os.RemoveAll(dir) }
	hostKeys := e.KnownHosts()
	e.DataDir = dir
	if os.Getenv("COUNTERSIGN_LOG_LEVEL") == "" {
		e.LogLevel = "error"
	}
	if err := change(&e, &f); err != nil {
		remove()
		return nil, nil, err
	}
	log, err := e.Logger(stderr)
	if err == nil {
		var b *Bot
		cwd, _ := os.Getwd()
		o.NoModel, o.Dir, o.HostKeys = true, cwd, hostKeys
		if b, err = New(ctx, e, f, log, o); err == nil {
			return b, func() { b.Close(); remove() }, nil
		}
	}
	remove()
	return nil, nil, err
}
