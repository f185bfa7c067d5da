package storage

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// LoadKey reads the console's signing key, making it at the first start.
func LoadKey(path string) ([]byte, error) {
	key, err := os.ReadFile(path)
	if err == nil && len(key) == 32 {
		return key, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the console's key %s cannot be read (%w); check who owns the data directory", path, err)
	}
	key = make([]byte, 32)
	_, _ = rand.Read(key)
	return key, SaveKey(path, key)
}

// SaveKey writes the signing key of the console.
func SaveKey(path string, key []byte) error {
	if err := os.WriteFile(path, key, 0o600); err != nil {
		return fmt.Errorf("the data directory cannot be written (%w); set COUNTERSIGN_DATA_DIR to a directory that the bot may write", err)
	}
	return nil
}
