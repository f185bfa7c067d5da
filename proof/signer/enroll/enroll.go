// Package enroll makes the script that lets certificates of the signer into a host.
package enroll

import (
	_ "embed"
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"countersign/targets/certificate"
)

// Where things are on a host.
const (
	Authorities = "/etc/ssh/countersign_ca.pub"
	Runner      = "/usr/local/lib/countersign/countersign-runner"
	conf        = "/etc/ssh/sshd_config.d/00-countersign.conf"
	lib         = "/usr/local/lib/countersign"
)

// Groups are those whose members can change the system, so the read-only account is in none.
const Groups = "admin disk docker incus incus-admin kmem libvirt lxd microk8s podman root shadow sudo wheel"

//go:embed enroll.sh
var script string

// Host is what a script is for.
type Host struct {
	Target      string
	HostKey     string   // its fingerprint
	Watch       string   // the bot's read-only account
	RunAs       []string // the accounts that approved commands run as
	KeepKeys    bool     // other keys still open those
	Authorities []string // public keys of the signer, as lines of authorized_keys
	Program     []byte   // countersign-runner, for the host's processor
}

// obeyed is what a shell would do more with than take it for a word.
var obeyed = regexp.MustCompile(`[^A-Za-z0-9 _.:+/-]`)

// Script is a shell script for root on the host. Who may be whom is checked with the configuration.
func Script(h Host) (string, error) {
	runAs := strings.Join(h.RunAs, " ")
	if bad := obeyed.FindString(h.Target + h.HostKey + h.Watch + runAs); bad != "" {
		return "", fmt.Errorf("%s: no name for a script has %q", h.Target, bad)
	}
	var keys, program strings.Builder
	for _, k := range h.Authorities {
		if strings.ContainsAny(k, "\n'\\") || !strings.Contains(k, " ") {
			return "", fmt.Errorf("%q is no public key", k)
		}
		keys.WriteString(k + "\n")
	}
	for line := range slices.Chunk([]byte(base64.StdEncoding.EncodeToString(h.Program)), 76) {
		program.WriteString(string(line) + "\n")
	}
	keep, kept := "", ": nothing else logs in there"
	if h.KeepKeys {
		keep, kept = "yes", "; its other keys go on working, without any approval"
	}
	return strings.NewReplacer(
		"%WATCH%", h.Watch, "%RUNAS%", runAs, "%TARGET%", h.Target, "%HOSTKEY%", h.HostKey, "%KEEP%", keep, "%KEPT%", kept,
		"%CONF%", conf, "%LIB%", lib, "%CA%", Authorities, "%STATE%", certificate.State, "%GROUPS%", Groups,
		"%KEYS%", keys.String(), "%PROGRAM%", program.String(),
	).Replace(script), nil
}
