package redact

import (
	"regexp"
	"strings"
	"sync"
)

// rule finds one shape of secret. The secret is the first group that matched,
// or the whole match where there is none.
type rule struct {
	name string
	// words are looked for first, in lower case: without one of them the
	// expression isn't run.
	words []string
	re    *regexp.Regexp
	// ok reports whether what was found is a secret and no ordinary word; the
	// rule's name of the thing is in the match.
	ok func(match, value string) bool
}

// value is a value in quotes, in escaped quotes, or up to the next blank or
// separator.
const value = `(?:"((?:[^"\\\n]|\\.)+)"|'([^'\n]+)'|\\"([^"\\\n]+)\\"|([^\s"'\\,;&<>(){}|` + "`" + `][^\s"'\\,;&<>(){}|` + "`" + `]*))`

// rules are compiled once, when they are first needed.
var rules = sync.OnceValue(func() []rule {
	re := regexp.MustCompile
	return []rule{
		{name: "private-key", words: []string{"private key"},
			re: re(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\z)`)},
		{name: "aws-access-key", words: []string{"akia", "asia", "agpa", "aida", "aroa", "aipa", "anpa", "anva"},
			re: re(`\b(?:AKIA|ASIA|AGPA|AIDA|AROA|AIPA|ANPA|ANVA)[A-Z0-9]{16}\b`)},
		{name: "github-token", words: []string{"ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"},
			re: re(`\b(?:gh[pousr]_[A-Za-z0-9]{30,255}|github_pat_[A-Za-z0-9_]{22,255})`)},
		{name: "gitlab-token", words: []string{"glpat-"}, re: re(`\bglpat-[A-Za-z0-9_-]{20,}`)},
		{name: "slack-token", words: []string{"xox", "xapp-"}, re: re(`\bxox[abceoprs](?:\.xox[a-z])?-[A-Za-z0-9-]{10,}|\bxapp-[0-9]-[A-Za-z0-9-]{10,}`)},
		{name: "slack-webhook", words: []string{"hooks.slack.com"}, re: re(`hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9/_-]{20,})`)},
		{name: "discord-token", words: []string{"."}, re: re(`\b[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}\b`)},
		{name: "discord-webhook", words: []string{"/api/webhooks/"}, re: re(`/api/webhooks/[0-9]{10,}/([A-Za-z0-9_-]{20,})`)},
		{name: "api-key", words: []string{"sk-", "sk_", "rk_", "aiza", "hvs.", "npm_", "dop_v1_", "sg."},
			re: re(`\bsk-[A-Za-z0-9_-]{20,}|\b[sr]k_(?:live|test)_[A-Za-z0-9]{16,}|\bAIza[0-9A-Za-z_-]{35}|\bhvs\.[A-Za-z0-9_-]{20,}|\bnpm_[A-Za-z0-9]{30,}|\bdop_v1_[a-f0-9]{60,}|\bSG\.[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{20,}`),
			ok: func(_, v string) bool { return strings.ContainsAny(v, "0123456789") }},
		{name: "jwt", words: []string{"eyj"}, re: re(`\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}`)},
		{name: "url-password", words: []string{"://"}, re: re(`\b[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s/?#:@'"]*:([^\s/?#'"]+)@`), ok: plausible},
		{name: "url-token", words: []string{"://"}, re: re(`://([A-Za-z0-9_-]{20,255})@`), ok: mixed},
		{name: "authorization", words: []string{"authorization"},
			re: re(`(?i)\bauthorization\\?["']?[ \t]*[:=][ \t]*\\?["']?(?:bearer|basic|token|digest|negotiate|apikey|aws4-hmac-sha256)[ \t]+([^\s"'\\]+)`), ok: plausible},
		{name: "authorization", words: []string{"authorization"},
			re: re(`(?i)\bauthorization\\?["']?[ \t]*[:=][ \t]*\\?["']?([A-Za-z0-9._~+/=-]{16,})`), ok: mixed},
		{name: "authorization", words: []string{"bearer"}, re: re(`(?i)\bbearer[ \t]+([A-Za-z0-9._~+/-]{16,}=*)`), ok: mixed},
		{name: "cookie", words: []string{"cookie"}, re: re(`(?i)\bcookie\\?["']?[ \t]*:[ \t]*\\?["']?([A-Za-z0-9_.-]+=[^\r\n"'\\]+)`)},
		{name: "password", words: []string{"pass", "pwd"},
			re: re(`(?i)(?:\b|_)(?:[a-z0-9_.-]*(?:password|passwd|passphrase|pwd)|[a-z0-9_.-]*[_-]pass)\\?["']?[ \t]*(?:=>|:=|[:=])[ \t]*` + value), ok: plausible},
		{name: "secret", words: []string{"secret", "token", "key"},
			re: re(`(?i)(?:\b|_)[a-z0-9_.-]*(?:secret|token|api[_-]?key|secret[_-]?key|access[_-]?key|private[_-]?key|secret_key_base|auth[_-]?key|encryption[_-]?key|signing[_-]?key)\\?["']?[ \t]*(?:=>|:=|[:=])[ \t]*` + value), ok: keyed},
		{name: "password", words: []string{"--"},
			re: re(`(?i)(?:^|\s)--?[a-z0-9-]*(?:password|passwd|passphrase|secret|token|api-?key|access-?key)[ \t]+` + value), ok: argument},
		{name: "password", words: []string{"mysql", "mariadb"}, re: re(`\b(?:mysql|mariadb)[a-z-]*[ \t][^\n|;&]*?[ \t]?-p([^\s"'=]+)`), ok: notOption},
		{name: "password", words: []string{"curl", "wget"}, re: re(`\bcurl[ \t][^\n|;&]*?(?:-u|--user|--proxy-user)[ \t=]*["']?[^\s:"']+:([^\s"']+)`), ok: plausible},
		{name: "password", words: []string{"sshpass", "login"}, re: re(`\b(?:sshpass|(?:docker|podman|az|helm registry|skopeo|oc)[ \t]+login)[ \t][^\n|;&]*?-p[ \t]*["']?([^\s"']+)`), ok: plausible},
		{name: "password", words: []string{"redis-cli"}, re: re(`\bredis-cli[ \t][^\n|;&]*?-a[ \t]+["']?([^\s"']+)`), ok: plausible},
		{name: "password", words: []string{"password"}, re: re(`(?m)(?:\blogin[ \t]+\S+[ \t]+password[ \t]+(\S+)|^[ \t]*password[ \t]+(\S+)[ \t]*$)`), ok: plausible},
	}
})

// findRules adds the findings of all rules to spans.
func findRules(text string, spans []span) []span {
	if len(text) == 0 {
		return spans
	}
	lower := strings.ToLower(text)
	for _, ru := range rules() {
		if !containsAny(lower, ru.words) {
			continue
		}
		for _, m := range ru.re.FindAllStringSubmatchIndex(text, -1) {
			start, end := m[0], m[1]
			for g := 2; g+1 < len(m); g += 2 {
				if m[g] >= 0 {
					start, end = m[g], m[g+1]
					break
				}
			}
			v := text[start:end]
			if v == "" || strings.HasPrefix(v, "[redacted:") || ru.ok != nil && !ru.ok(text[m[0]:start], v) {
				continue
			}
			spans = append(spans, span{m[0], m[1], start, end, ru.name, v})
		}
	}
	return spans
}

func containsAny(s string, words []string) bool {
	for _, w := range words {
		if strings.Contains(s, w) {
			return true
		}
	}
	return false
}

// ordinary are words that stand behind "password:" and the like without being one.
var ordinary = map[string]bool{
	"true": true, "false": true, "yes": true, "no": true, "null": true, "none": true, "nil": true, "undefined": true, "empty": true, "set": true, "unset": true,
	"incorrect": true, "invalid": true, "required": true, "expired": true, "missing": true, "wrong": true, "failed": true, "denied": true, "mismatch": true, "ok": true,
	"accepted": true, "changed": true, "for": true, "is": true, "not": true, "string": true, "redacted": true, "hidden": true, "masked": true, "optional": true, "disabled": true, "enabled": true,
	"prompt": true, "the": true, "a": true, "an": true, "authentication": true, "error": true, "unknown": true, "must": true, "too": true, "and": true, "or": true, "in": true, "on": true, "of": true,
	"user": true, "username": true, "account": true, "login": true, "password": true, "from": true, "at": true, "with": true, "by": true, "this": true, "that": true, "your": true, "please": true, "has": true, "was": true, "to": true, "reset": true, "length": true,
}

// plausible reports whether a value beside a name of a password is one.
func plausible(_, v string) bool {
	lower := strings.ToLower(strings.Trim(v, ".:!?"))
	if lower == "" || ordinary[lower] || strings.Trim(v, "*xX.-_#") == "" {
		return false
	}
	switch {
	case strings.HasPrefix(v, "$"), strings.HasPrefix(v, "{{"), strings.HasPrefix(v, "%("), strings.HasPrefix(v, "<") && strings.HasSuffix(v, ">"):
		return false // a reference to the value
	case strings.HasPrefix(v, "/") && strings.Count(v, "/") > 1 && !strings.ContainsAny(v, "+=:@!"):
		return false // the path of a file
	}
	return true
}

// mixed reports whether a value looks made by a machine: a digit in it.
func mixed(_, v string) bool { return strings.ContainsAny(v, "0123456789") && plausible("", v) }

// keyed is plausible for names that stand in prose and settings, too ("token:",
// "secret ="): a word of a language or a short number is no secret there.
func keyed(match, v string) bool {
	if !plausible("", v) || len(v) < 6 {
		return false
	}
	if strings.Trim(v, "0123456789.") == "" {
		return len(v) >= 12
	}
	quoted := strings.HasSuffix(match, `"`) || strings.HasSuffix(match, "'")
	if strings.HasSuffix(match, "=") || quoted {
		return true
	}
	return len(v) >= 8 && strings.ContainsAny(v, "0123456789") || len(v) >= 20 && strings.ToLower(v) != v
}

// argument is plausible for the word behind an option.
func argument(_, v string) bool { return !strings.HasPrefix(v, "-") && plausible("", v) }

// notOption refuses what continues an option's own name (-port).
func notOption(match, v string) bool {
	switch v {
	case "ort", "rotocol", "ipe", "assword", "rint-defaults", "lugin-dir", "ager":
		return false
	}
	// -p as part of a long option (--print-defaults) or of a word (x-p).
	before := strings.TrimSuffix(match, "-p")
	return before != match && (strings.HasSuffix(before, " ") || strings.HasSuffix(before, "\t")) && plausible("", v)
}
