package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode"
)

// licence is one file with the terms of a module.
type licence struct {
	file string // its name at the root of the module
	sum  string // SHA-256 of its content, in hex
}

// licenceNames are the beginnings of names of files with terms, as deploy/release.sh has them.
var licenceNames = []string{"LICENSE", "LICENCE", "COPYING", "NOTICE"}

// licences finds the licence files of a module in the cache, by name. A module whose source
// is not there, or which has none, is an error: nobody could say then on which terms it is in
// the program.
func licences(cache, path, version string) ([]licence, error) {
	dir := filepath.Join(cache, filepath.FromSlash(escaped(path))+"@"+escaped(version))
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the source of %s %s is not in the module cache %s; run go mod download, or name another cache with -modcache", path, version, cache)
	}
	if err != nil {
		return nil, fmt.Errorf("the source of %s %s cannot be read: %w", path, version, err)
	}
	var out []licence
	for _, e := range entries { // sorted by name
		if !e.Type().IsRegular() || !hasTerms(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("a licence of %s %s cannot be read: %w", path, version, err)
		}
		sum := sha256.Sum256(text)
		out = append(out, licence{file: e.Name(), sum: hex.EncodeToString(sum[:])})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("the module %s %s has no file with its licence; it cannot be part of a release", path, version)
	}
	return out, nil
}

func hasTerms(name string) bool {
	for _, begin := range licenceNames {
		if strings.HasPrefix(name, begin) {
			return true
		}
	}
	return false
}

// escaped writes a module's path or version as it is on the disk of the cache: an upper-case
// letter is "!" and the lower-case one (golang.org/x/mod/module, "Escaped Paths").
func escaped(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsUpper(r) {
			b.WriteByte('!')
			r = unicode.ToLower(r)
		}
		b.WriteRune(r)
	}
	return b.String()
}
