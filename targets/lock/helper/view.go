//go:build linux

package helper

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"countersign/targets/backend"
	"countersign/targets/rehearsal"
)

// view becomes the program that makes a throwaway view and rehearses a program in it. It is for sudo: it
// needs root, and the program runs as who called sudo, never as root.
func view(args []string, stderr io.Writer) int {
	refuse := func(format string, a ...any) int {
		_, _ = fmt.Fprintf(stderr, "countersign-lock: "+format+"\n", a...)
		return unlocked
	}
	token, dir, input, rest := args[0], args[1], args[2], args[3:]
	end := slices.Index(rest, "--")
	account, err := caller()
	switch {
	case os.Geteuid() != 0:
		return refuse("view needs root; run it under sudo")
	case err != nil:
		return refuse("%v", err)
	case end < 0 || end == len(rest)-1 || !path.IsAbs(dir) || strings.ContainsAny(token, " \n"):
		return refuse("view has no program, or its directory is not absolute")
	case slices.ContainsFunc(rest[:end], func(v string) bool { return !strings.Contains(v, "=") || strings.HasPrefix(v, "-") }):
		return refuse("what stands before -- must be variables")
	}
	self, err := os.Executable()
	if err != nil {
		return refuse("%v", err)
	}
	launcher := []string{self, "run", "--needs", Needs(backend.Lock{Files: true}), "--hits", token, "--"}
	argv := rehearsal.Command(rehearsal.Spec{Argv: rest[end+1:], Dir: dir, Env: rest[:end], Terminal: input == "silent"}, account, launcher)
	if err := os.Setenv("PATH", backend.SearchPath); err != nil {
		return refuse("%v", err)
	}
	program, err := exec.LookPath(argv[0])
	if err != nil {
		return refuse("%v", err)
	}
	return refuse("%v", syscall.Exec(program, argv, []string{"PATH=" + backend.SearchPath, "LANG=C.UTF-8"}))
}

// caller is who called sudo. Root is refused: it needs no sudo.
func caller() (a rehearsal.Account, err error) {
	uid, err1 := strconv.Atoi(os.Getenv("SUDO_UID"))
	gid, err2 := strconv.Atoi(os.Getenv("SUDO_GID"))
	if err1 != nil || err2 != nil || uid <= 0 || gid < 0 {
		return a, fmt.Errorf("view runs a program as who called sudo, and SUDO_UID is %q", os.Getenv("SUDO_UID"))
	}
	return rehearsal.Account{UID: uid, GID: gid}, nil
}
