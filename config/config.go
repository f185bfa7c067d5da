// Package config is what the operator says: the environment, the YAML file, their defaults,
// and the checks that refuse what no bot can be built from, each in one sentence that names
// the key and what to write instead. It opens and starts nothing.
package config

import (
	"fmt"
	"strings"

	"countersign/adapters/chat/network"
)

// Error is an error of usage or configuration: exit status 2. It is one sentence for the
// operator.
type Error struct {
	sentence string
	file     string // it is about; "" if it is not about a file
}

func (e *Error) Error() string { return e.sentence }

// Errorf makes an [Error].
func Errorf(format string, a ...any) error { return &Error{sentence: fmt.Sprintf(format, a...)} }

// pages are the documents about the keys of the file that have one.
var pages = map[string]string{
	"agent": "policy-order", "alerts": "alerts", "audit": "audit", "caps": "cost", "channels": "policy-order", "groups": "sign-in",
	"mcp": "plugins", "metrics": "metrics", "policy": "policy-rules", "prices": "cost", "risk": "gate", "roles": "own-roles", "sub_agents": "own-roles",
	"targets": "targets", "tmux": "terminals", "tools": "plugins", "web": "sign-in", "workflows": "workflow-file",
}

// Page is the document about the key of the file that the sentence begins with, as `countersign docs`
// names it: the list of all keys for another one, and "" if it is about none.
func (e *Error) Page() string {
	key := strings.TrimPrefix(e.sentence, e.file+": ")
	if i := strings.IndexAny(key, ".:[ "); i >= 0 {
		key = key[:i]
	}
	if page := pages[key]; page != "" || e.file == "" {
		return page
	}
	if network.Of(key).Token != "" {
		return key
	}
	return "configuration"
}

// Read reads the environment and the file that it names, and checks both. It puts secrets
// that come from files into the environment of the process; see [ReadEnv].
func Read() (Env, File, error) {
	e, err := ReadEnv()
	if err != nil {
		return e, File{}, err
	}
	f, err := ReadFile(e.Config)
	if err == nil {
		err = f.ReadSecrets()
	}
	for _, p := range append(e.files(f), e.DataDir, e.Config) {
		if strings.ContainsAny(p, patternChars) && err == nil {
			err = Errorf("%s can't be kept secret: rename it, without %s in its path", p, patternChars)
		}
	}
	f.Risk.Secrets = append(f.Risk.Secrets, e.Places(f)...)
	return e, f, err
}
