package container

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// The sockets that engines listen on by default: dockerd's -H (docs of dockerd) and
// podman's system service (podman-system-service(1)).
const (
	dockerSocket = "unix:///var/run/docker.sock"
	podmanSocket = "unix:///run/podman/podman.sock"
)

// pingTime bounds the question whether a socket is an engine's.
const pingTime = 3 * time.Second

// searchPlan is where to look for an engine, in this order.
type searchPlan struct {
	sockets  []string // URLs
	programs []string // names of command lines
}

// plan turns the configuration into places. What somebody named is never replaced
// by something else: there the same name may belong to another container.
func (c Config) plan() (searchPlan, error) {
	podman := []string{podmanSocket}
	if c.RuntimeDir != "" {
		if !path.IsAbs(c.RuntimeDir) {
			return searchPlan{}, fmt.Errorf("container: the runtime directory %q is not absolute", c.RuntimeDir)
		}
		podman = []string{"unix://" + path.Join(c.RuntimeDir, "podman", "podman.sock"), podmanSocket}
	}
	docker := []string{dockerSocket}
	if c.DockerHost != "" {
		docker = nil
		if isSupportedHost(c.DockerHost) {
			docker = []string{c.DockerHost}
		}
	}
	switch {
	case strings.Contains(c.Engine, "://"):
		if !isSupportedHost(c.Engine) {
			return searchPlan{}, fmt.Errorf("container: %q is not an engine's address; give unix:///PATH or tcp://HOST:PORT", c.Engine)
		}
		return searchPlan{sockets: []string{c.Engine}}, nil
	case c.Engine == "docker", c.Engine == "" && c.DockerHost != "":
		return searchPlan{sockets: docker, programs: []string{"docker"}}, nil
	case c.Engine == "podman":
		return searchPlan{sockets: podman, programs: []string{"podman"}}, nil
	case c.Engine == "":
		return searchPlan{sockets: append(docker, podman...), programs: []string{"docker", "podman"}}, nil
	}
	return searchPlan{}, fmt.Errorf("container: %q is not an engine; give \"docker\", \"podman\" or the address of a socket", c.Engine)
}

func isSupportedHost(host string) bool {
	if p, ok := strings.CutPrefix(host, "unix://"); ok {
		return path.IsAbs(p)
	}
	p, ok := strings.CutPrefix(host, "tcp://")
	return ok && p != ""
}

// discover returns the first engine that answers.
func discover(ctx context.Context, p searchPlan, local *commandRunner) (engine, error) {
	var tried []string
	var errs []error
	for _, host := range p.sockets {
		e, err := dial(ctx, host)
		if err == nil {
			return e, nil
		}
		tried = append(tried, host)
		errs = append(errs, err)
	}
	for _, name := range p.programs {
		e, err := findProgram(ctx, local, name)
		if err == nil {
			return e, nil
		}
		tried = append(tried, "the program "+name)
		errs = append(errs, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return nil, &noEngineError{tried: tried, err: errors.Join(errs...)}
}

// noEngineError lists where an engine was looked for in one sentence; why each
// place did not do is for errors.Is.
type noEngineError struct {
	tried []string
	err   error
}

func (e *noEngineError) Error() string {
	return "no container engine answers (tried " + strings.Join(e.tried, ", ") +
		"); start docker or podman, or let the bot reach a socket of theirs"
}

func (e *noEngineError) Unwrap() error { return e.err }

// programName is the first word that "docker --version" prints, in lower case:
// podman may be installed under docker's name.
func programName(argv0, version string) string {
	fields := strings.Fields(strings.ToLower(version))
	if len(fields) == 0 || (fields[0] != "docker" && fields[0] != "podman") {
		return filepath.Base(argv0)
	}
	return fields[0]
}

// programVersion finds the number in "Docker version 20.10.24, build 5d6db84" and
// "podman version 4.3.1".
func programVersion(version string) string {
	fields := strings.Fields(version)
	for i, f := range fields {
		if f == "version" && i+1 < len(fields) {
			return strings.TrimRight(fields[i+1], ",")
		}
	}
	return ""
}
