// Package config is what the operator says: the environment, the YAML file, their defaults,
// and the checks that refuse what no bot can be built from, each in one sentence that names
// the key and what to write instead. It opens and starts nothing.
package config

import "fmt"

// Error is an error of usage or configuration: exit status 2. It is one sentence for the
// operator.
type Error struct{ sentence string }

func (e *Error) Error() string { return e.sentence }

// Errorf makes an [Error].
func Errorf(format string, a ...any) error { return &Error{fmt.Sprintf(format, a...)} }

// Read reads the environment and the file that it names, and checks both. It puts secrets
// that come from files into the environment of the process; see [ReadEnv].
func Read() (Env, File, error) {
	e, err := ReadEnv()
	if err != nil {
		return e, File{}, err
	}
	f, err := ReadFile(e.Config)
	if err == nil {
		err = fromFiles(f.variables())
	}
	f.Risk.Secrets = append(f.Risk.Secrets, e.Places(f)...)
	return e, f, err
}
