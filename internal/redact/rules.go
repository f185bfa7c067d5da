package redact

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// rule finds one shape of secret: wherever one of the words stands, it is tried
// at that place and nowhere else, so that a text without the words costs next to
// nothing.
type rule struct {
	name  string
	words []string // in lower case
	// re is tried right behind the word, or at the word if whole is set. The secret
	// is the first group that matched, or the whole match where there is none.
	re    func() *regexp.Regexp
	whole bool
	// before, if set, must hold of the text and the place of the word.
	before func(text string, at int) bool
	// ok, if set, reports whether what was found is a secret and no ordinary
	// word; lead is what stands between the word and it.
	ok func(lead, value string) bool
	// hunt takes the place of all that. It adds what it finds for the word at a
	// place to spans, and returns from where the rule's next word counts.
	hunt func(t *page, at, after int, spans []span) ([]span, int)
}

// value is a value in quotes, in escaped quotes, or up to the next blank or
// separator.
const value = `(?:"((?:[^"\\\n]|\\.)+)"|'([^'\n]+)'|\\"([^"\\\n]+)\\"|([^\s\x1b"'\\,;&<>(){}|` + "`" + `]+))`

// is separates a name and its value.
const is = `\\?["']?[ \t]*(?:=>|:=|[:=])[ \t]*`

// ruleset are all rules, with the automaton of their words.
type ruleset struct {
	rules []rule
	words *matcher
	// uses lists for each word which rules have it.
	uses [][]use
	n    int // uses in all
}

// use is one word of one rule; slot numbers it among all.
type use struct{ rule, slot int }

// rules is made once, when it is first needed: 4 ms and 0.6 MB. Each expression is
// compiled when a text first has one of its words; all of them take 3 MB.
var rules = sync.OnceValue(func() *ruleset {
	set := &ruleset{rules: ownRules()}
	for _, f := range gitleaksRules() {
		set.rules = append(set.rules, rule{name: f.id, words: f.words, hunt: f.hunt()})
	}
	number := map[string]int{}
	var words []string
	for i, ru := range set.rules {
		for _, w := range ru.words {
			n, ok := number[w]
			if !ok {
				n = len(words)
				number[w] = n
				words = append(words, w)
				set.uses = append(set.uses, nil)
			}
			set.uses[n] = append(set.uses[n], use{i, set.n})
			set.n++
		}
	}
	set.words = newMatcher(words, true)
	return set
})

// ownRules are the rules for what people on call print: passwords beside their
// names, headers, options of commands. They come before those of gitleaks, which
// know the tokens of many products.
func ownRules() []rule {
	re := func(s string) func() *regexp.Regexp {
		return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\A(?:` + s + `)`) })
	}
	passwords := []string{"password", "passwd", "passphrase", "pwd"}
	keys := []string{
		"secret", "token", "api_key", "api-key", "apikey", "secret_key", "secretkey", "secret-key", "access_key", "accesskey", "access-key",
		"private_key", "privatekey", "private-key",
		"secret_key_base", "auth_key", "authkey", "auth-key", "encryption_key", "encryptionkey", "encryption-key", "signing_key", "signingkey", "signing-key",
	}
	return []rule{
		{name: privateKey, words: []string{"-----begin "}, hunt: huntKey},
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
		{name: "countersign-token", words: []string{"cst_"}, whole: true, before: wordStart, re: re(`cst_[A-Za-z0-9_-]{20,}`)},
		{name: "api-key", words: []string{"dop_v1_"}, whole: true, re: re(`dop_v1_[a-f0-9]{60,}`)},
		{name: "api-key", words: []string{"sg."}, whole: true, before: wordStart, re: re(`SG\.[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{20,}`), ok: mixed},
		{name: "jwt", words: []string{"eyj"}, whole: true, before: wordStart, re: re(`eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}`)},
		{name: "url-password", words: []string{"://"}, re: re(`[^\s/?#:@'"]*:([^\s/?#'"]+)@`), ok: plausible},
		{name: "url-token", words: []string{"://"}, re: re(`([A-Za-z0-9_-]{20,255})@`), ok: mixed},
		{name: "authorization", words: []string{"authorization"},
			re: re(is + `\\?["']?(?i:bearer|basic|token|digest|negotiate|apikey|aws4-hmac-sha256)[ \t]+([^\s"'\\]+)`), ok: plausible},
		{name: "authorization", words: []string{"authorization"}, re: re(is + `\\?["']?([A-Za-z0-9._~+/=-]{16,})`), ok: mixed},
		{name: "authorization", words: []string{"bearer"}, re: re(`[ \t]+([A-Za-z0-9._~+/-]{16,}=*)`), before: wordStart, ok: mixed},
		{name: "cookie", words: []string{"cookie"}, re: re(`\\?["']?[ \t]*:[ \t]*\\?["']?([A-Za-z0-9_.-]+=[^\s;"'\\]*(?:; ?[A-Za-z0-9_.-]+=[^\s;"'\\]*)*)`)},
		{name: "password", words: passwords, re: re(is + value), ok: plausible},
		{name: "password", words: []string{"_pass", "-pass"}, re: re(is + value), ok: plausible},
		{name: "secret", words: keys, re: re(is + value), ok: keyed},
		{name: "password", words: append(slices.Clip(keys), passwords...), re: re(`[ \t]+` + value), before: inOption, ok: argument},
		{name: "password", words: []string{"password"}, re: re(`[ \t]+([^\s"'\\,;&<>(){}|]+)`), before: inNetrc, ok: plausible},
		{name: "password", words: []string{" -p", "\t-p"}, re: re(`([^\s"'=]+)`), before: lineHas("mysql", "mariadb"), ok: joined},
		{name: "password", words: []string{" -p"}, re: re(`[ \t]+["']?([^\s"'-][^\s"']*)`), before: lineHas("sshpass", "docker login",
			"podman login", "az login", "registry login", "skopeo login", "oc login"), ok: plausible},
		{name: "password", words: []string{" -u", " --user", " --proxy-user"}, re: re(`[ \t=]*["']?[^\s:"'/]+:([^\s"'/]+)`), before: lineHas("curl"), ok: plausible},
		{name: "password", words: []string{" -a "}, re: re(`[ \t]*["']?([^\s"']+)`), before: lineHas("redis-cli"), ok: plausible},
		{name: kubeData, words: []string{"kind", "apiversion"}, hunt: kubeSecret},
	}
}

// discordToken has no word of its own: it is found by its two dots.
var discordToken = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\b[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}`)
})

// page is a text that is looked through, with what the rules ask of it.
type page struct {
	s    string
	low  string
	line [2]int // the line that was asked for last

	edges
	command bool   // the text is a command
	quotes  []bool // which bytes are in quotes; nil if nobody asked
	ends    int    // where the key ends that was asked for last
	looked  int    // bytes that were looked at for objects
}

// edges tell a Stream where a text must not be cut.
type edges struct {
	hold  int      // what stands from here on may be judged otherwise when more comes
	whole [][2]int // pieces of the text that are only understood whole
}

// lower returns the text with A to Z lowered; every place stays the same.
func (t *page) lower() string {
	if t.low == "" {
		t.low = lowerASCII(t.s)
	}
	return t.low
}

func (t *page) lineAt(at int) (start, end int) {
	if at < t.line[0] || at > t.line[1] || t.line[1] == 0 {
		t.line[0] = strings.LastIndexByte(t.s[:at], '\n') + 1
		t.line[1] = len(t.s)
		if i := strings.IndexByte(t.s[at:], '\n'); i >= 0 {
			t.line[1] = at + i
		}
	}
	return t.line[0], t.line[1]
}

func (t *page) lineStart(at int) int {
	start, _ := t.lineAt(at)
	return start
}

// lineEnd returns where the line's break is, or the text ends.
func (t *page) lineEnd(at int) int {
	_, end := t.lineAt(at)
	return end
}

// nameStart returns where a name begins that goes on at a place.
func (t *page) nameStart(at int) int {
	for n := 0; n < longestName && at > 0 && isNameByte(t.s[at-1]); n++ {
		at--
	}
	return at
}

// findRules adds the findings of all rules to spans.
func findRules(s string, command bool, spans []span) ([]span, edges) {
	t := &page{s: s, command: command, edges: edges{hold: len(s)}}
	set := rules()
	var next []int // from where a word of a rule counts again
	set.words.each(s, func(word, at int) bool {
		if next == nil {
			next = make([]int, set.n)
		}
		after := at + set.words.size[word]
		for _, u := range set.uses[word] {
			if at < next[u.slot] {
				continue
			}
			ru, had := &set.rules[u.rule], len(spans)
			if ru.hunt != nil {
				spans, next[u.slot] = ru.hunt(t, at, after, spans)
			} else {
				spans, next[u.slot] = ru.try(t, at, after, spans)
			}
			if command && ru.name != privateKey && ru.name != "facebook-access-token" { // which are no words, or have a bar in them
				spans = t.words(spans, had)
			}
			for i := had; i < len(spans); i++ {
				spans[i].rank = u.rule + 1
			}
		}
		return true
	})
	return findDiscord(s, spans), t.edges
}

func (ru *rule) try(t *page, at, after int, spans []span) ([]span, int) {
	if ru.before != nil && !ru.before(t.lower(), at) {
		return spans, after
	}
	base := after
	if ru.whole {
		base = at
	}
	m := ru.re().FindStringSubmatchIndex(t.s[base:])
	if m == nil {
		return spans, after
	}
	start, end := base+m[0], base+m[1]
	for g := 2; g+1 < len(m); g += 2 {
		if m[g] >= 0 {
			start, end = base+m[g], base+m[g+1]
			break
		}
	}
	v := t.s[start:end]
	if strings.HasPrefix(v, "[redacted:") || ru.ok != nil && !ru.ok(t.s[after:max(after, start)], v) {
		if end-start > 64 {
			return spans, max(after, end) // so that the time stays linear
		}
		return spans, after
	}
	return append(spans, span{from: at, to: base + m[1], start: start, end: end, rule: ru.name, value: v}), max(after, end)
}

// findDiscord adds tokens of Discord: they have no word of their own, and are
// found by their two dots.
func findDiscord(text string, spans []span) []span {
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
			start, end := from+m[0], from+m[1]
			spans = append(spans, span{from: start, to: end, start: start, end: end, rule: "discord-token", value: text[start:end], rank: 1 << 16})
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
	"incorrect": true, "invalid": true, "required": true, "expired": true, "missing": true, "wrong": true, "failed": true, "denied": true,
	"mismatch": true, "ok": true,
	"accepted": true, "changed": true, "for": true, "is": true, "not": true, "string": true, "redacted": true, "hidden": true,
	"masked": true, "optional": true, "disabled": true, "enabled": true,
	"prompt": true, "the": true, "a": true, "an": true, "authentication": true, "error": true, "unknown": true, "must": true, "too": true,
	"and": true, "or": true, "in": true, "on": true, "of": true,
	"user": true, "username": true, "account": true, "login": true, "password": true, "from": true, "at": true, "with": true, "by": true,
	"this": true, "that": true, "your": true, "please": true,
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
