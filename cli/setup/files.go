// Package setup writes the first settings of a bot: it asks what they need, checks each answer
// when it is given, and writes a configuration, the variables beside it and a service file.
package setup

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"countersign/config"
)

// Answers are what the settings are made of.
type Answers struct {
	// System: the bot is a service of its machine, and else one of an account.
	System bool
	// Dir is where the settings go.
	Dir string
	// ModelURL is the address of a model server; "" is OpenAI's. Key may be "" for a server that wants none.
	ModelURL, Key, Model string
	// People may sign in to the console and approve. One person is in solo mode: they approve what
	// they asked for, too.
	People []string
	// Hosts are aliases of SSHConfig.
	Hosts     []string
	SSHConfig string
	// Unusable are those of Hosts that couldn't be reached, and why. They are written as comments.
	Unusable map[string]string
	// Tokens are those of chat networks, by their variables.
	Tokens map[string]string
	// Member is the id of who approves there; "" is added later.
	Member string
	// around is the environment of the questions.
	around config.Env
}

// solo reports whether one person decides alone.
func (a Answers) solo() bool { return len(a.People) == 1 }

// environment are the variables beside the configuration.
func (a Answers) environment() string {
	var b strings.Builder
	b.WriteString("# Read by countersign and by systemd: NAME=VALUE, without quotes. Keep it to yourself.\n")
	set := func(name, value string) {
		if value != "" {
			b.WriteString(name + "=" + value + "\n")
		}
	}
	set("OPENAI_BASE_URL", a.ModelURL)
	set("OPENAI_API_KEY", a.Key)
	set("OPENAI_MODEL", a.Model)
	for _, c := range connections() {
		for _, t := range c.tokens {
			set(t.variable, a.Tokens[t.variable])
		}
	}
	if a.System {
		set("COUNTERSIGN_DATA_DIR", systemData)
	}
	return b.String()
}

// systemData is where a service of the machine keeps what it knows.
const systemData = "/var/lib/countersign/data"

// configuration is the file, with what each part means.
func (a Answers) configuration() string {
	var b strings.Builder
	b.WriteString("# What the bot may do, where, and who decides. countersign docs configuration has every key.\n\n")
	b.WriteString("# Where commands run. Nobody approves on a target without approvers.\ntargets:\n")
	b.WriteString("  local: {kind: local, approvers: [oncall]} # the bot's own machine\n")
	for _, h := range a.Hosts {
		if why := a.Unusable[h]; why != "" {
			fmt.Fprintf(&b, "  # Not usable yet: %s\n  #", why)
		}
		fmt.Fprintf(&b, "  %s: {kind: ssh, host: %s, ssh_config: %s, host_key: ask, approvers: [oncall]}\n", quoted(targetName(h)), quoted(h), quoted(a.SSHConfig))
	}
	b.WriteString("\n# Who approves. Names in web sign in to the console: countersign login NAME.\ngroups:\n  oncall:\n")
	fmt.Fprintf(&b, "    web: [%s]\n", list(a.People))
	if i := slices.IndexFunc(connections(), a.used); i >= 0 {
		b.WriteString("    " + a.approvers(connections()[i], a.Member))
	} else {
		for _, c := range connections() {
			b.WriteString("    # " + a.approvers(c, c.sample))
		}
	}
	b.WriteString("\npolicy:\n  approve:\n")
	if a.solo() {
		b.WriteString("    # Solo mode: one person may approve what they asked for. At high and critical risk they write\n" +
			"    # the target's name first, and every card says that it is in solo mode. With a second person,\n" +
			"    # make this \"default\": then nobody approves their own request at high or critical risk.\n    requester: solo\n")
	} else {
		b.WriteString("    requester: default # nobody approves their own request at high or critical risk\n")
	}
	return b.String()
}

// targetName is an alias as the name of a target.
func targetName(alias string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, strings.ToLower(alias))
	name = strings.Trim(name, "-_")
	if name == "" || name == "local" {
		return "host-" + name
	}
	return name
}

func list(names []string) string {
	var out []string
	for _, n := range names {
		out = append(out, quoted(n))
	}
	return strings.Join(out, ", ")
}

// plainScalar is what YAML takes for a text without quotes: it begins with a letter, and is none
// of YAML's words.
var plainScalar = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_./-]*$`)

// quoted is a text as a YAML scalar.
func quoted(s string) string {
	if plainScalar.MatchString(s) && !slices.Contains([]string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}, strings.ToLower(s)) {
		return s
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// service is a unit of systemd that runs a program with the settings.
func (a Answers) service(program string) string {
	user, target, wait := "", "default.target", ""
	if a.System {
		user, target, wait = "User=countersign\nStateDirectory=countersign countersign/data\nStateDirectoryMode=0700\n", "multi-user.target", "Wants=network-online.target\nAfter=network-online.target\n"
	}
	return `[Unit]
Description=Countersign, a chat-ops bot that asks before it changes anything
` + wait + `
[Service]
ExecStart=` + program + ` run
# Takes over policy, groups, channels and approvers; a file with a mistake changes nothing.
ExecReload=/bin/kill -HUP $MAINPID
Environment=COUNTERSIGN_CONFIG=` + filepath.Join(a.Dir, config.FileName) + `
EnvironmentFile=` + filepath.Join(a.Dir, config.EnvironmentName) + `
` + user + `UMask=0077
Restart=always
RestartSec=5s
# Status 2 is a mistake in the settings: trying again doesn't help.
RestartPreventExitStatus=2
# Terminals and background processes outlive the bot, which finds them again.
KillMode=process
TimeoutStopSec=45s

[Install]
WantedBy=` + target + `
`
}
