package redact

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// rule finds one shape of secret: wherever one of the words stands, the
// expression is tried at that place and nowhere else, so that a text without
// the words costs next to nothing.
type rule struct {
	name  string
	words []string // in lower case
	// re begins with \A. It is tried right behind the word, or at the word if
	// whole is set. The secret is the first group that matched, or the whole
	// match where there is none.
	re    *regexp.Regexp
	whole bool
	// before, if set, must hold of the text and the place of the word.
	before func(text string, at int) bool
	// ok, if set, reports whether what was found is a secret and no ordinary
	// word; lead is what stands between the word and it.
	ok func(lead, value string) bool
}

// value is a value in quotes, in escaped quotes, or up to the next blank or
// separator.
const value = `(?:"((?:[^"\\\n]|\\.)+)"|'([^'\n]+)'|\\"([^"\\\n]+)\\"|([^\s"'\\,;&<>(){}|` + "`" + `]+))`

// is separates a name and its value.
const is = `\\?["']?[ \t]*(?:=>|:=|[:=])[ \t]*`

// rules are compiled once, when they are first needed.
var rules = sync.OnceValue(func() []rule {
	re := func(s string) *regexp.Regexp { return regexp.MustCompile(`\A(?:` + s + `)`) }
	passwords := []string{"password", "passwd", "passphrase", "pwd"}
	keys := []string{
		"secret", "token", "api_key", "api-key", "apikey", "secret_key", "secretkey", "secret-key", "access_key", "accesskey", "access-key", "private_key", "privatekey", "private-key",
		"secret_key_base", "auth_key", "authkey", "auth-key", "encryption_key", "encryptionkey", "encryption-key", "signing_key", "signingkey", "signing-key",
	}
	return []rule{
		{name: "private-key", words: []string{"-----begin "}, whole: true,
			re: re(`(?s:-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\z))`)},
		{name: "aws-access-key", words: []string{"akia", "asia", "agpa", "aida", "aroa", "aipa", "anpa", "anva"}, whole: true, before: wordStart,
			re: re(`[A-Z]{4}[A-Z0-9]{16}\b`)},
		{name: "github-token", words: []string{"ghp_", "gho_", "ghu_", "ghs_", "ghr_"}, whole: true, re: re(`gh[pousr]_[A-Za-z0-9]{30,255}`)},
		{name: "github-token", words: []string{"github_pat_"}, whole: true, re: re(`github_pat_[A-Za-z0-9_]{22,255}`)},
		{name: "gitlab-token", words: []string{"glpat-"}, whole: true, re: re(`glpat-[A-Za-z0-9_-]{20,}`)},
		{name: "slack-token", words: []string{"xox"}, whole: true, before: wordStart, re: re(`xox[abceoprs](?:\.xox[a-z])?-[A-Za-z0-9-]{10,}`)},
		{name: "slack-token", words: []string{"xapp-"}, whole: true, before: wordStart, re: re(`xapp-[0-9]-[A-Za-z0-9-]{10,}`)},
		{name: "slack-webhook", words: []string{"hooks.slack.com/"}, re: re(`(?:services|workflows|triggers)/([A-Za-z0-9/_-]{20,})`)},
		{name: "discord-webhook", words: []string{"/api/webhooks/"}, re: re(`[0-9]{10,}/([A-Za-z0-9_-]{20,})`)},
		{name: "api-key", words: []string{"sk-"}, whole: true, before: wordStart, re: re(`sk-[A-Za-z0-9_-]{20,}`), ok: mixed},
		{name: "api-key", words: []string{"sk_", "rk_"}, whole: true, before: wordStart, re: re(`[sr]k_(?:live|test)_[A-Za-z0-9]{16,}`)},
		{name: "api-key", words: []string{"aiza"}, whole: true, before: wordStart, re: re(`AIza[0-9A-Za-z_-]{35}`)},
		{name: "api-key", words: []string{"hvs."}, whole: true, before: wordStart, re: re(`hvs\.[A-Za-z0-9_-]{20,}`), ok: mixed},
		{name: "api-key", words: []string{"npm_"}, whole: true, before: wordStart, re: re(`npm_[A-Za-z0-9]{30,}`), ok: mixed},
		{name: "api-key", words: []string{"dop_v1_"}, whole: true, re: re(`dop_v1_[a-f0-9]{60,}`)},
		{name: "api-key", words: []string{"sg."}, whole: true, before: wordStart, re: re(`SG\.[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{20,}`), ok: mixed},
		{name: "jwt", words: []string{"eyj"}, whole: true, before: wordStart, re: re(`eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}`)},
		{name: "url-password", words: []string{"://"}, re: re(`[^\s/?#:@'"]*:([^\s/?#'"]+)@`), ok: plausible},
		{name: "url-token", words: []string{"://"}, re: re(`([A-Za-z0-9_-]{20,255})@`), ok: mixed},
		{name: "authorization", words: []string{"authorization"}, re: re(is + `\\?["']?(?i:bearer|basic|token|digest|negotiate|apikey|aws4-hmac-sha256)[ \t]+([^\s"'\\]+)`), ok: plausible},
		{name: "authorization", words: []string{"authorization"}, re: re(is + `\\?["']?([A-Za-z0-9._~+/=-]{16,})`), ok: mixed},
		{name: "authorization", words: []string{"bearer"}, re: re(`[ \t]+([A-Za-z0-9._~+/-]{16,}=*)`), before: wordStart, ok: mixed},
		{name: "cookie", words: []string{"cookie"}, re: re(`\\?["']?[ \t]*:[ \t]*\\?["']?([A-Za-z0-9_.-]+=[^\r\n"'\\]+)`)},
		{name: "password", words: passwords, re: re(is + value), ok: plausible},
		{name: "password", words: []string{"_pass", "-pass"}, re: re(is + value), ok: plausible},
		{name: "secret", words: keys, re: re(is + value), ok: keyed},
		{name: "password", words: append(slices.Clip(keys), passwords...), re: re(`[ \t]+` + value), before: inOption, ok: argument},
		{name: "password", words: []string{"password"}, re: re(`[ \t]+([^\s"'\\,;&<>(){}|]+)`), before: inNetrc, ok: plausible},
		{name: "password", words: []string{" -p", "\t-p"}, re: re(`([^\s"'=]+)`), before: lineHas("mysql", "mariadb"), ok: joined},
		{name: "password", words: []string{" -p"}, re: re(`[ \t]+["']?([^\s"'-][^\s"']*)`), before: lineHas("sshpass", "docker login", "podman login", "az login", "registry login", "skopeo login", "oc login"), ok: plausible},
		{name: "password", words: []string{" -u", " --user", " --proxy-user"}, re: re(`[ \t=]*["']?[^\s:"'/]+:([^\s"'/]+)`), before: lineHas("curl"), ok: plausible},
		{name: "password", words: []string{" -a "}, re: re(`[ \t]*["']?([^\s"']+)`), before: lineHas("redis-cli"), ok: plausible},
	}
})

// discordToken has no word of its own: it is found by its two dots.
var discordToken = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\b[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}`)
})

// findRules adds the findings of all rules to spans.
func findRules(text string, spans []span) []span {
	if text == "" {
		return spans
	}
	lower := lowerASCII(text)
	for _, ru := range rules() {
		for _, w := range ru.words {
			for at := 0; at < len(text); {
				i := strings.Index(lower[at:], w)
				if i < 0 {
					break
				}
				i += at
				at = i + len(w)
				if ru.before != nil && !ru.before(lower, i) {
					continue
				}
				base := at
				if ru.whole {
					base = i
				}
				m := ru.re.FindStringSubmatchIndex(text[base:])
				if m == nil {
					continue
				}
				start, end := base+m[0], base+m[1]
				for g := 2; g+1 < len(m); g += 2 {
					if m[g] >= 0 {
						start, end = base+m[g], base+m[g+1]
						break
					}
				}
				v := text[start:end]
				if strings.HasPrefix(v, "[redacted:") || ru.ok != nil && !ru.ok(text[at:max(at, start)], v) {
					if end-start > 64 {
						at = max(at, end) // so that the time stays linear
					}
					continue
				}
				spans = append(spans, span{i, base + m[1], start, end, ru.name, v})
				at = max(at, end)
			}
		}
	}
	for at := 0; ; at++ {
		i := strings.IndexByte(text[at:], '.')
		if i < 0 {
			return spans
		}
		at += i
		if at < 24 || at+34 > len(text) || text[at+7] != '.' {
			continue
		}
		from := max(0, at-30)
		if m := discordToken().FindStringIndex(text[from:min(len(text), at+60)]); m != nil && from+m[0] < at {
			spans = append(spans, span{from + m[0], from + m[1], from + m[0], from + m[1], "discord-token", text[from+m[0] : from+m[1]]})
		}
	}
}

// lowerASCII lowers A to Z and keeps every place, as strings.ToLower doesn't.
func lowerASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

func isWordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_'
}

// wordStart holds where no letter stands before.
func wordStart(text string, at int) bool { return at == 0 || !isWordByte(text[at-1]) }

// inOption holds in the name of a command-line option.
func inOption(text string, at int) bool {
	for at > 0 && (isWordByte(text[at-1]) || text[at-1] == '-') {
		at--
	}
	return at < len(text) && text[at] == '-' && (at == 0 || text[at-1] == ' ' || text[at-1] == '\t' || text[at-1] == '\n')
}

// linePart returns what stands before a place in its line, as far as it
// matters.
func linePart(text string, at int) string {
	part := text[max(0, at-512):at]
	return part[strings.LastIndexAny(part, "\n|;&")+1:]
}

// lineHas holds where one of the words stands before in the same command.
func lineHas(words ...string) func(string, int) bool {
	return func(text string, at int) bool {
		part := linePart(text, at)
		for _, w := range words {
			if strings.Contains(part, w) {
				return true
			}
		}
		return false
	}
}

// inNetrc holds in a .netrc: behind a login, or alone in its line.
func inNetrc(text string, at int) bool {
	part := linePart(text, at)
	if strings.Contains(part, "login ") {
		return true
	}
	rest, _, _ := strings.Cut(text[at:], "\n")
	return strings.TrimSpace(part) == "" && len(strings.Fields(rest)) == 2
}

// ordinary are words that stand behind "password:" and the like without being one.
var ordinary = map[string]bool{
	"true": true, "false": true, "yes": true, "no": true, "null": true, "none": true, "nil": true, "undefined": true, "empty": true, "set": true, "unset": true,
	"incorrect": true, "invalid": true, "required": true, "expired": true, "missing": true, "wrong": true, "failed": true, "denied": true, "mismatch": true, "ok": true,
	"accepted": true, "changed": true, "for": true, "is": true, "not": true, "string": true, "redacted": true, "hidden": true, "masked": true, "optional": true, "disabled": true, "enabled": true,
	"prompt": true, "the": true, "a": true, "an": true, "authentication": true, "error": true, "unknown": true, "must": true, "too": true, "and": true, "or": true, "in": true, "on": true, "of": true,
	"user": true, "username": true, "account": true, "login": true, "password": true, "from": true, "at": true, "with": true, "by": true, "this": true, "that": true, "your": true, "please": true,
	"has": true, "was": true, "to": true, "reset": true, "length": true,
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
func keyed(lead, v string) bool {
	if !plausible("", v) || len(v) < 6 {
		return false
	}
	if strings.Trim(v, "0123456789.") == "" {
		return len(v) >= 12
	}
	if strings.HasSuffix(lead, "=") || strings.HasSuffix(lead, `"`) || strings.HasSuffix(lead, "'") {
		return true
	}
	return len(v) >= 8 && strings.ContainsAny(v, "0123456789") || len(v) >= 20 && strings.ToLower(v) != v
}

// argument is plausible for the word behind an option.
func argument(_, v string) bool { return !strings.HasPrefix(v, "-") && plausible("", v) }

// joined is plausible for a value that is joined to -p: not the rest of an
// option that only begins so.
func joined(_, v string) bool {
	switch v {
	case "ort", "rotocol", "ipe", "assword", "rint-defaults", "lugin-dir", "ager":
		return false
	}
	return plausible("", v)
}
