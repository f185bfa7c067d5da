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

	"countersign/cli/words"
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
	// Programs are the tokens of programs on this machine, by name.
	Programs map[string]string `json:"programs,omitempty"`
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
	if a, err = Read(path); errors.Is(err, fs.ErrNotExist) {
		return a, fmt.Errorf("this command line is not signed in; run %[1]s login LINK with a link that %[1]s login NAME prints on the bot's machine", Program())
	}
	if err != nil {
		return a, fmt.Errorf("%s can't be read (%w); sign in again with %s login LINK", path, err, Program())
	}
	return a, nil
}

// Read is the account in a file.
func Read(path string) (a Account, err error) {
	raw, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(raw, &a)
	}
	return a, err
}

// HookFile is the file of the account of a hook.
func HookFile(id string) (string, error) {
	dir, err := userDir()
	return filepath.Join(dir, "hooks", id+".json"), err
}

// Save keeps an account for the next commands.
func (a Account) Save() error {
	path, err := accountFile()
	if err != nil {
		return err
	}
	return a.Write(path)
}

// Write keeps an account in a file that only its owner can read.
func (a Account) Write(path string) error {
	raw, err := json.Marshal(a)
	if err != nil {
		return err
	}
	if err := write(path, raw); err != nil {
		return fmt.Errorf("the token can't be kept (%w); print it with --print", err)
	}
	return nil
}

// write replaces a file that only this account may read.
func write(path string, raw []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), fileName+".*") // 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // what was renamed is there no more
	_, err = f.Write(raw)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
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

// Program is how to begin a command of the whole program, which the small ones come with.
func Program() string { return strings.TrimSuffix(words.Program(), "-hook") }
