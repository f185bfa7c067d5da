// Package account keeps who is signed in at which bot on this machine, for the programs that talk to
// it.
package account

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"countersign/internal/words"
)

const fileName = "client.json"

// userDir is where the settings of this account are.
func userDir() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("there is no home directory for the settings (%w); set HOME or XDG_CONFIG_HOME", err)
	}
	return filepath.Join(dir, "countersign"), nil
}

// Account is who is signed in where.
type Account struct {
	URL   string `json:"url"`
	Token string `json:"token"`
	ID    string `json:"id"` // of the token, to end it
	User  string `json:"user"`
}

func accountFile() (string, error) {
	dir, err := userDir()
	return filepath.Join(dir, fileName), err
}

// Load is the account of the environment (COUNTERSIGN_URL and COUNTERSIGN_TOKEN), or the one that
// signed in last.
func Load() (a Account, err error) {
	if token := os.Getenv("COUNTERSIGN_TOKEN"); token != "" {
		if a = (Account{URL: os.Getenv("COUNTERSIGN_URL"), Token: token}); a.URL == "" {
			return a, fmt.Errorf("COUNTERSIGN_TOKEN is set, and COUNTERSIGN_URL is not; set it to the bot's address")
		}
		return a, nil
	}
	path, err := accountFile()
	if err != nil {
		return a, err
	}
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return a, fmt.Errorf("this command line is not signed in; run %[1]s login LINK with a link that %[1]s login NAME prints on the bot's machine", program())
	}
	if err == nil {
		err = json.Unmarshal(raw, &a)
	}
	if err != nil {
		return a, fmt.Errorf("%s can't be read (%w); sign in again with %s login LINK", path, err, program())
	}
	return a, nil
}

// Save keeps an account for the next commands.
func (a Account) Save() error {
	path, err := accountFile()
	if err != nil {
		return err
	}
	raw, err := json.Marshal(a)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("the token can't be kept (%w); print it with --print", err)
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		return fmt.Errorf("the token can't be kept (%w); print it with --print", err)
	}
	return os.Chmod(path, 0o600) // it may have been there
}

// Forget removes what Save kept.
func Forget() error {
	path, err := accountFile()
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the token can't be removed (%w)", err)
	}
	return nil
}

// program is how to begin a command of the whole program, which the small ones come with.
func program() string { return strings.TrimSuffix(words.Program(), "-hook") }
