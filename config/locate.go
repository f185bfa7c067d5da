package config

import (
	"bufio"
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// FileName and EnvironmentName are what a directory of settings holds: the configuration, and the
// variables that are beside it because they are secret or say where things are.
const (
	FileName        = "countersign.yaml"
	EnvironmentName = "environment"
)

// SystemDir is where a bot that is a service of its machine has its settings.
const SystemDir = "/etc/countersign"

// UserDir is where a bot that runs in somebody's account has its settings.
func UserDir() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", Errorf("there is no home directory for the settings (%v); set HOME or XDG_CONFIG_HOME", err)
	}
	return filepath.Join(dir, "countersign"), nil
}

// Locate sets COUNTERSIGN_CONFIG where it isn't set: to the configuration of the account, or for root
// that of the machine, if there is one. It also sets those variables of the file "environment" beside
// it that are not set yet. A chosen file comes before all, with the variables beside it where
// it is called as [FileName], or else with the same ones.
func Locate(chosen string) error {
	if chosen == "" && os.Getenv("COUNTERSIGN_CONFIG") != "" {
		return nil
	}
	var dirs []string
	if filepath.Base(chosen) == FileName {
		dirs = append(dirs, filepath.Dir(chosen))
	}
	if dir, err := UserDir(); err == nil {
		dirs = append(dirs, dir)
	}
	if os.Geteuid() == 0 {
		dirs = append(dirs, SystemDir)
	}
	for _, dir := range dirs {
		file, variables := filepath.Join(dir, FileName), filepath.Join(dir, EnvironmentName)
		there := file
		if chosen != "" {
			there = variables
		}
		if st, err := os.Stat(there); err != nil || !st.Mode().IsRegular() {
			continue
		}
		if err := readVariables(variables); err != nil {
			return err
		}
		return os.Setenv("COUNTERSIGN_CONFIG", cmp.Or(chosen, file))
	}
	if chosen == "" {
		return nil
	}
	return os.Setenv("COUNTERSIGN_CONFIG", chosen)
}

// readVariables sets the variables of a file that are not set yet: NAME=VALUE on a line each, as
// systemd reads them, without quotes. No file is none.
func readVariables(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return Errorf("%s can't be read (%v); make it readable for this account, or set COUNTERSIGN_CONFIG to do without it", path, err)
	}
	defer func() { _ = f.Close() }()
	if st, err := f.Stat(); err != nil || st.Mode().Perm()&0o077 != 0 {
		return Errorf("%s holds secrets and others may read it; run chmod 600 %s", path, path)
	}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		name, value, ok := strings.Cut(line, "=")
		if line == "" || strings.HasPrefix(line, "#") || !ok {
			continue
		}
		if _, set := os.LookupEnv(name); set {
			continue
		}
		if err := os.Setenv(name, value); err != nil {
			return Errorf("%s: the line of %q can't be used (%v)", path, name, err)
		}
	}
	if err := lines.Err(); err != nil {
		return Errorf("%s can't be read: %v", path, err)
	}
	return nil
}
