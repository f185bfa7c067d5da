package container

import (
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestWhereAnEngineIsLookedFor(t *testing.T) {
	both := []string{"docker", "podman"}
	for _, tt := range []struct {
		name              string
		c                 Config
		sockets, programs []string
		err               string
	}{
		{name: "docker first, then podman", sockets: []string{dockerSocket, podmanSocket}, programs: both},
		{name: "the user's own podman before the system's", c: Config{RuntimeDir: "/run/user/7"},
			sockets: []string{dockerSocket, "unix:///run/user/7/podman/podman.sock", podmanSocket}, programs: both},
		{name: "DOCKER_HOST stands alone", c: Config{DockerHost: "unix:///x.sock", RuntimeDir: "/run/user/7"},
			sockets: []string{"unix:///x.sock"}, programs: []string{"docker"}},
		{name: "a DOCKER_HOST that only docker's program speaks", c: Config{DockerHost: "ssh://web-1"}, programs: []string{"docker"}},
		{name: "docker by name", c: Config{Engine: "docker"}, sockets: []string{dockerSocket}, programs: []string{"docker"}},
		{name: "docker by name, with its host", c: Config{Engine: "docker", DockerHost: "tcp://127.0.0.1:1"},
			sockets: []string{"tcp://127.0.0.1:1"}, programs: []string{"docker"}},
		{name: "podman by name does not care for DOCKER_HOST", c: Config{Engine: "podman", DockerHost: "unix:///x.sock"},
			sockets: []string{podmanSocket}, programs: []string{"podman"}},
		{name: "a socket is taken at its word", c: Config{Engine: "unix:///y.sock", DockerHost: "unix:///x.sock"}, sockets: []string{"unix:///y.sock"}},
		{name: "a relative socket", c: Config{Engine: "unix://y.sock"}, err: "is not an engine's address"},
		{name: "a scheme that is not spoken", c: Config{Engine: "ssh://web-1"}, err: "is not an engine's address"},
		{name: "an unknown engine", c: Config{Engine: "lxc"}, err: "is not an engine"},
		{name: "a relative runtime directory", c: Config{RuntimeDir: "run"}, err: "is not absolute"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := tt.c.plan()
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("%v, want %q", err, tt.err)
				}
				return
			}
			if err != nil || !slices.Equal(p.sockets, tt.sockets) || !slices.Equal(p.programs, tt.programs) {
				t.Errorf("%+v %v", p, err)
			}
		})
	}
}

// listen answers like an engine of that kind, or, with none, like something else.
func listen(t *testing.T, kind string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cse-") //nolint:usetesting // a socket's path is short, and t.TempDir has the test's name in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if kind == "" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Api-Version", "1.41")
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/version") {
			_, _ = w.Write([]byte(`{"Version":"9.8.7","ApiVersion":"1.41","Components":[{"Name":"` + kind + `","Version":"9.8.7"}]}`))
		}
	})}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return "unix://" + path
}

// script puts a program into a directory.
func script(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
}

// B-108: docker, then podman, and a sentence when there is neither.
func TestTheFirstEngineThatAnswersIsUsed(t *testing.T) {
	docker, podman, other := listen(t, "Engine"), listen(t, "Podman Engine"), listen(t, "")
	const dead = "unix:///no/such/cs.sock"
	version := map[string]string{
		"docker": "echo Docker version 28.2.2, build e6534b4", "podman": "echo podman version 4.3.1",
		"alias": "echo podman version 4.3.1", "broken": "echo sorry >&2; exit 1",
	}
	both := []string{"docker", "podman"}
	for _, tt := range []struct {
		name string
		p    searchPlan
		have map[string]string // programs on the PATH: name to what it is
		want string
		err  bool
	}{
		{name: "a socket before any program", p: searchPlan{[]string{dead, podman}, both}, have: map[string]string{"docker": "docker"}, want: "podman 9.8.7 at " + podman},
		{name: "docker's socket before podman's", p: searchPlan{[]string{docker, podman}, nil}, want: "docker 9.8.7 at " + docker},
		{name: "a socket that is something else", p: searchPlan{[]string{other, docker}, nil}, want: "docker 9.8.7 at " + docker},
		{name: "docker's program first", p: searchPlan{[]string{dead}, both}, have: map[string]string{"docker": "docker", "podman": "podman"}, want: "docker 28.2.2, by its command line"},
		{name: "only podman on the PATH", p: searchPlan{nil, both}, have: map[string]string{"podman": "podman"}, want: "podman 4.3.1, by its command line"},
		{name: "a docker that does not work", p: searchPlan{nil, both}, have: map[string]string{"docker": "broken", "podman": "podman"}, want: "podman 4.3.1, by its command line"},
		{name: "podman under docker's name", p: searchPlan{nil, both}, have: map[string]string{"docker": "alias"}, want: "podman 4.3.1, by its command line"},
		{name: "neither", p: searchPlan{[]string{dead, other}, both}, err: true,
			want: "no container engine answers (tried " + dead + ", " + other + ", the program docker, the program podman); start docker or podman, or let the bot reach a socket of theirs"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, what := range tt.have {
				script(t, dir, name, version[what])
			}
			e, err := discover(t.Context(), tt.p, newCommandRunner(Config{Path: dir}))
			var got string
			if err != nil {
				got = err.Error()
			} else {
				got = e.String()
				defer func() { _ = e.close() }()
			}
			if got != tt.want || (err != nil) != tt.err {
				t.Errorf("%q\nwant %q", got, tt.want)
			}
			if tt.err && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the reason is lost: %#v", err)
			}
		})
	}
}

func TestAMistakeInTheConfigurationIsSaidAtOnce(t *testing.T) {
	for name, c := range map[string]Config{
		"no container":             {},
		"a name that is an option": {Container: "-it"},
		"a name that is a path":    {Container: "a/../b"},
		"a name with a space":      {Container: "a b"},
		"a user that is an option": {Container: "web", User: "--privileged"},
		"a user with a space":      {Container: "web", User: "a b"},
		"an engine that is none":   {Container: "web", Engine: "lxc"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := New(c); err == nil || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v", err)
			}
		})
	}
	for _, user := range []string{"", "root", "1000", "1000:1000", "app:staff"} {
		if _, err := New(Config{Container: "web-1.a_b", User: user}); err != nil {
			t.Error(err)
		}
	}
}
