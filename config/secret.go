package config

import (
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"countersign/internal/redact"
)

// What the configuration names as secret is marked where it is declared: the tag secret:"file" is on
// paths of files whose content is a secret, secret:"url" on addresses that may hold one. What
// variables of the environment hold is secret as well.

// marked are the texts of the configuration whose field has the tag secret of that kind.
func marked(v reflect.Value, kind, tag string) []string {
	var out []string
	switch v.Kind() {
	case reflect.String:
		if tag == kind && v.String() != "" {
			out = append(out, v.String())
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			out = marked(v.Elem(), kind, tag)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			out = append(out, marked(v.Index(i), kind, tag)...)
		}
	case reflect.Map:
		for _, e := range v.Seq2() {
			out = append(out, marked(e, kind, tag)...)
		}
	case reflect.Struct:
		for f, e := range v.Fields() {
			if f.IsExported() {
				out = append(out, marked(e, kind, f.Tag.Get("secret"))...)
			}
		}
	default:
	}
	return out
}

// Beside is a path of the configuration: a relative one is beside the file.
func (e Env) Beside(name string) string {
	if filepath.IsAbs(name) || e.Config == "" {
		return name
	}
	return filepath.Join(filepath.Dir(e.Config), name)
}

// files are those whose content the configuration says is a secret.
func (e Env) files(f File) []string {
	var out []string
	for _, name := range marked(reflect.ValueOf(f), "file", "") {
		if rest, home := strings.CutPrefix(name, "~/"); home {
			dir, err := os.UserHomeDir()
			if err != nil {
				continue
			}
			name = filepath.Join(dir, rest)
		}
		if out = append(out, name); !filepath.IsAbs(name) {
			out = append(out, e.Beside(name)) // who opens it says which
		}
	}
	for _, name := range append(f.variables(), SecretNames...) {
		out = append(out, os.Getenv(name+"_FILE"))
	}
	return slices.DeleteFunc(out, func(p string) bool { return p == "" })
}

// Places are the bot's own files and directories that hold secrets: a command that reads them asks, and
// no tool for files touches them.
func (e Env) Places(f File) []string {
	var out []string
	for _, p := range append(e.files(f), e.DataDir, e.Config) {
		whole, err := filepath.Abs(p)
		if err != nil || p == "" || whole == "/" {
			continue
		}
		out = append(out, whole)
		if leads, err := filepath.EvalSymlinks(whole); err == nil && leads != whole {
			out = append(out, leads)
		}
	}
	return slices.DeleteFunc(out, func(p string) bool { return strings.ContainsAny(p, patternChars) })
}

// patternChars mean something else in a list of secrets.
const patternChars = `*?[\`

// Secrets are the values that are to be taken out of every text: those of the environment, and what the
// configuration names.
func (e Env) Secrets(f File) []string {
	var out []string
	for field, v := range reflect.ValueOf(e).Fields() {
		if s, ok := reflect.TypeAssert[redact.Secret](v); ok && field.IsExported() {
			out = append(out, s.Reveal())
		}
	}
	for _, v := range e.ModelHeaders {
		out = append(out, v)
		if _, token, ok := strings.Cut(v, " "); ok {
			out = append(out, token) // of "Bearer <token>"
		}
	}
	out = append(out, addressSecrets(e.Store.Reveal(), false)...)
	for _, name := range f.variables() {
		if os.Getenv(name+"_FILE") != "" || slices.Contains(f.secretVariables(), name) || namesSecret(name) {
			out = append(out, os.Getenv(name))
		}
	}
	for _, u := range marked(reflect.ValueOf(f), "url", "") {
		out = append(out, addressSecrets(u, true)...)
	}
	for _, name := range e.files(f) {
		out = append(out, content(name)...)
	}
	return slices.DeleteFunc(out, func(s string) bool { return s == "" })
}

// namesSecret reports whether a variable's name says that it holds a secret.
func namesSecret(name string) bool {
	return slices.ContainsFunc([]string{"TOKEN", "SECRET", "KEY", "PASS", "PWD", "CREDENTIAL", "AUTH", "DSN"}, func(w string) bool { return strings.Contains(strings.ToUpper(name), w) })
}

const (
	maxSecretFile = 64 << 10
	minLine       = 16 // bytes of a line of a key that is looked for on its own line
)

// content are the values of a file: the whole of it, and each line.
func content(name string) []string {
	st, err := os.Stat(name)
	if err != nil || !st.Mode().IsRegular() || st.Size() > maxSecretFile {
		return nil
	}
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil
	}
	out := []string{strings.TrimSpace(string(raw))}
	for line := range strings.Lines(string(raw)) {
		if line = strings.TrimSpace(line); len(line) >= minLine && !strings.HasPrefix(line, "-----") {
			out = append(out, line)
		}
	}
	return out
}

// addressSecrets are the parts of an address that let in whoever has them: its password, and values of its
// query and with path parts of its path that are named as secrets or look made by a machine.
func addressSecrets(address string, path bool) []string {
	u, err := url.Parse(address)
	if err != nil { // Postgres takes several hosts
		user, rest, _ := strings.Cut(address, "@")
		if u, err = url.Parse(user + "@" + rest[max(0, strings.IndexAny(rest, "/?")):]); err != nil {
			return nil
		}
	}
	made := func(s string) bool { return len(s) >= minLine && strings.ContainsAny(s, "0123456789") }
	var out []string
	if password, ok := u.User.Password(); ok {
		out = append(out, password)
	}
	for name, values := range u.Query() {
		for _, v := range values {
			if namesSecret(name) || made(v) {
				out = append(out, v)
			}
		}
	}
	for part := range strings.SplitSeq(u.EscapedPath(), "/") {
		if path && made(part) {
			out = append(out, part)
		}
	}
	if len(out) > 0 {
		out = append(out, address)
	}
	return out
}
