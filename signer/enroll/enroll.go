// Package enroll makes the script that lets certificates of the signer into a host.
package enroll

import (
	_ "embed"
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"
)

// Where things are on a host.
const (
	Authorities = "/etc/ssh/countersign_ca.pub"
	Runner      = "/usr/local/lib/countersign/countersign-runner"
	conf        = "/etc/ssh/sshd_config.d/00-countersign.conf"
	lib         = "/usr/local/lib/countersign"
)

//go:embed enroll.sh
var script string

// Host is what a script is for.
type Host struct {
	Target      string
	Watch       string   // the bot's read-only account
	RunAs       string   // the account that approved commands run as
	Authorities []string // public keys of the signer, as lines of authorized_keys
	Program     []byte   // countersign-runner, for the host's processor
}

var plain = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// Script is a shell script for root on the host.
func Script(h Host) (string, error) {
	for _, name := range []string{h.Target, h.Watch, h.RunAs} {
		if !plain.MatchString(name) {
			return "", fmt.Errorf("%q is no plain name", name)
		}
	}
	var keys, program strings.Builder
	for _, k := range h.Authorities {
		if strings.ContainsAny(k, "\n'\\") || !strings.Contains(k, " ") {
			return "", fmt.Errorf("%q is no public key", k)
		}
		keys.WriteString(k + "\n")
	}
	for text := base64.StdEncoding.EncodeToString(h.Program); text != ""; {
		n := min(len(text), 76)
		program.WriteString(text[:n] + "\n")
		text = text[n:]
	}
	return strings.NewReplacer(
		"%WATCH%", h.Watch, "%RUNAS%", h.RunAs, "%TARGET%", h.Target, "%CONF%", conf, "%LIB%", lib, "%CA%", Authorities,
		"%KEYS%", keys.String(), "%PROGRAM%", program.String(),
	).Replace(script), nil
}
