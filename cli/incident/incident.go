// Package incident makes the demo's incident out of real things in one
// directory: a service that writes debug logs until it reaches its disk quota
// and then refuses orders. It recovers by itself once there is room again.
//
// It is only for the demo: nothing of it is part of the bot that people run.
package incident

import (
	"context"
	_ "embed"
	"fmt"
	"path"
	"strings"

	"countersign/targets/backend"
	"countersign/targets/backend/door"
)

//go:embed checkout.sh
var script string

// Incident is one running service and its files.
type Incident struct {
	proc backend.Process
	done chan struct{}
}

// Start makes the files below dir, on the target, and starts the service there. The service
// ends with ctx or Stop.
func Start(ctx context.Context, t backend.Target, dir string) (*Incident, error) {
	i := &Incident{done: make(chan struct{})}
	for name, text := range files() {
		if err := t.FS().WriteFile(ctx, path.Join(dir, name), []byte(text), true); err != nil {
			return nil, fmt.Errorf("the demo's files cannot be written: %w", err)
		}
	}
	p, err := door.Start(ctx, t, door.Plumbing, nil, backend.Spec{Argv: []string{"/bin/sh", path.Join(dir, "bin", "checkout.sh"), dir}, Dir: dir})
	if err != nil {
		return nil, fmt.Errorf("the demo's service cannot be started: %w", err)
	}
	i.proc = p
	go func() { defer close(i.done); _, _ = p.Wait() }()
	return i, nil
}

// Stop ends the service and waits for it.
func (i *Incident) Stop() {
	i.proc.Kill()
	<-i.done
}

func files() map[string]string {
	f := map[string]string{
		"bin/checkout.sh":   script,
		"etc/checkout.conf": "log_level = debug   # switched on for a release last week, never switched off\nquota_kb = 2048\n",
		"run/health":        "unhealthy: cannot write order 4711: log directory is over its quota of 2048 KiB\n",
		"var/log/checkout/archive/orders-2026-10.log": lines("2026-10-%02d order accepted", 40<<10),
		"var/log/checkout/debug.log":                  lines("debug req=%06d cache lookup took 0ms, payload not shown", 120<<10),
	}
	for n := 1; n <= 3; n++ {
		f[fmt.Sprintf("var/log/checkout/debug.log.%d", n)] = lines("debug req=%06d cache lookup took 0ms, payload not shown", 700<<10)
	}
	return f
}

func lines(format string, size int) string {
	var b strings.Builder
	for n := 1; b.Len() < size; n++ {
		fmt.Fprintf(&b, format+"\n", n)
	}
	return b.String()
}
