// Package imports finds the files that a script visibly loads: what a shell script sources or runs
// by path, and what Python, Node, Perl and Ruby programs import from their own directory.
//
// It matches patterns in the text and runs nothing. So it finds only literal names: not those
// computed at run time, not system libraries, and not what a loaded file loads. It does not access
// files; the caller checks which names exist.
package imports

import (
	"bytes"
	_ "embed"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Language is the language of a script.
type Language int

// The languages; None is any other language, or not a script.
const (
	None Language = iota
	Shell
	Python
	Node
	Perl
	Ruby
)

// Load is one thing that a script loads.
type Load struct {
	// Names are its possible names: absolute, or relative to the script's directory, to the start
	// directory, or to the first script's directory.
	Names []string
	// Standard means that the language's standard library has that name, so there need not be a
	// file.
	Standard bool
}

// List is what a script loads.
type List struct {
	Loads []Load
	// Incomplete means that it also loads something whose name is only known at run time or that is
	// not beside the script.
	Incomplete bool
}

// maxLoads bounds the list of one script.
const maxLoads = 64

// Detect returns the language of a file: by its name, its first line, or the program that it is
// passed to.
func Detect(name, reader string, head []byte) Language {
	switch path.Ext(name) {
	case ".sh", ".bash", ".ksh", ".zsh":
		return Shell
	case ".py", ".pyw":
		return Python
	case ".js", ".mjs", ".cjs", ".ts", ".mts", ".cts":
		return Node
	case ".pl", ".pm":
		return Perl
	case ".rb":
		return Ruby
	}
	if line, _, _ := bytes.Cut(head, []byte("\n")); bytes.HasPrefix(line, []byte("#!")) {
		for w := range strings.FieldsSeq(string(line[2:])) {
			if l := ByProgram(w); l != None {
				return l
			}
		}
		return None
	}
	if path.Ext(name) != "" || bytes.IndexByte(head, 0) >= 0 {
		return None
	}
	return ByProgram(reader)
}

// ByProgram returns the language that a program reads.
func ByProgram(program string) Language {
	name := strings.TrimRight(path.Base(program), "0123456789.")
	switch name {
	case "sh", "bash", "dash", "ash", "ksh", "mksh", "zsh", "yash", "source", "":
		if name == "" && program != "." {
			return None
		}
		return Shell
	case "python", "pypy":
		return Python
	case "node", "nodejs", "deno", "bun", "tsx", "ts-node":
		return Node
	case "perl":
		return Perl
	case "ruby":
		return Ruby
	}
	return None
}

// Loads lists what a script of a language loads.
func Loads(l Language, text string) (out List) {
	defer func() {
		if recover() != nil { // a panic of the shell parser
			out.Incomplete = true
		}
	}()
	switch l {
	case None:
	case Shell:
		out = shell(text)
	case Python:
		out = python(text)
	case Node:
		out = node(text)
	case Perl:
		out = perl(text)
	case Ruby:
		out = ruby(text)
	}
	if len(out.Loads) > maxLoads {
		out.Loads, out.Incomplete = out.Loads[:maxLoads], true
	}
	return out
}

// addNames adds a load, unless it is in the list already.
func (l *List) addNames(standard bool, names ...string) {
	names = slices.DeleteFunc(names, func(n string) bool { return n == "" || len(n) > 4096 || strings.ContainsAny(n, "\x00\n") })
	same := func(o Load) bool { return slices.Equal(o.Names, names) }
	if len(names) > 0 && !slices.ContainsFunc(l.Loads, same) {
		l.Loads = append(l.Loads, Load{names, standard})
	}
}

func words(text string) map[string]bool {
	m := map[string]bool{}
	for w := range strings.FieldsSeq(text) {
		m[w] = true
	}
	return m
}

//go:embed python.txt
var pythonText string

var pythonStandard = sync.OnceValue(func() map[string]bool { return words(pythonText) })

var (
	pyImport  = regexp.MustCompile(`(?m)(?:^|[;:])[ \t]*import[ \t]+([^#\n;]+)`)
	pyFrom    = regexp.MustCompile(`(?m)(?:^|[;:])[ \t]*from[ \t]+(\.*)[ \t]*([\w.]*)[ \t]+import[ \t]*(\([^)]*\)|[^#\n;]+)`)
	pyDynamic = regexp.MustCompile(`\b(?:__import__|importlib|runpy|execfile|imp|pkgutil|sys\.path|site\.addsitedir)\b|` +
		`\b(?:exec|compile)\s*\(|\bimport[ \t]*\*?[ \t]*\(?[ \t]*$`)
	pyComment = regexp.MustCompile(`#[^\n]*`)
	pyName    = regexp.MustCompile(`^[\w.]+`)
)

func python(text string) List {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\\\n", " ")
	out := List{Incomplete: pyDynamic.MatchString(text)}
	module := func(up, name string) {
		if name == "" {
			return
		}
		parts := strings.Split(name, ".")
		for i := range parts { // "a.b" also runs a/__init__.py
			at := up + strings.Join(parts[:i+1], "/")
			own := up == "" && pythonStandard()[parts[0]]
			out.addNames(own || i < len(parts)-1, at+".py", at+"/__init__.py", at+".so")
		}
	}
	for _, m := range pyImport.FindAllStringSubmatch(text, -1) {
		for n := range strings.SplitSeq(m[1], ",") {
			module("", pyName.FindString(strings.TrimSpace(n)))
		}
	}
	for _, m := range pyFrom.FindAllStringSubmatch(text, -1) {
		up := ""
		if dots := len(m[1]); dots > 0 {
			up = "./" + strings.Repeat("../", dots-1)
			out.addNames(true, up+"__init__.py")
		}
		module(up, m[2])
		for n := range strings.SplitSeq(strings.Trim(pyComment.ReplaceAllString(m[3], ""), "()"), ",") {
			name := pyName.FindString(strings.TrimSpace(n))
			if name == "" {
				continue
			}
			at := up
			if m[2] != "" {
				at += strings.ReplaceAll(m[2], ".", "/") + "/"
			}
			out.addNames(true, at+name+".py", at+name+"/__init__.py") // a module, or a name in one
		}
	}
	return out
}

var nodeStandard = words(`assert async_hooks buffer child_process cluster console constants crypto dgram diagnostics_channel dns domain events fs
	http http2 https inspector module net os path perf_hooks process punycode querystring readline repl stream string_decoder sys timers
	tls trace_events tty url util v8 vm wasi worker_threads zlib`)

var (
	nodeRequire = regexp.MustCompile("\\b(?:require|import)\\s*\\(\\s*(?:'([^'\n]*)'|\"([^\"\n]*)\"|`([^`$\n]*)`)\\s*[),]")
	nodeAny     = regexp.MustCompile(`\b(?:require|import)\s*\(`)
	nodeImport  = regexp.MustCompile(`(?m)\b(?:import|export)\b[^;'"()` + "`" + `]*?(?:\bfrom\b\s*)?(?:'([^'\n]*)'|"([^"\n]*)")`)
	nodeDynamic = regexp.MustCompile(`\bcreateRequire\b|\brequire\s*\.|\bNODE_PATH\b|\bvm\.|\beval\s*\(|\brequire\s*[,;)=]`)
)

func node(text string) List {
	found := nodeRequire.FindAllStringSubmatch(text, -1)
	out := List{Incomplete: len(found) < len(nodeAny.FindAllString(text, -1)) || nodeDynamic.MatchString(text)}
	for _, m := range append(found, nodeImport.FindAllStringSubmatch(text, -1)...) {
		name := strings.Join(m[1:], "")
		own, _, _ := strings.Cut(strings.TrimPrefix(name, "node:"), "/")
		switch {
		case name == "." || name == ".." || strings.HasPrefix(name, "./") || strings.HasPrefix(name, "../") || strings.HasPrefix(name, "/"):
			var names []string
			for end := range strings.FieldsSeq(". .js .json .node .mjs .cjs .ts .mts .cts /index.js /index.json /index.node /index.ts /package.json") {
				names = append(names, strings.TrimSuffix(name, "/")+strings.TrimSuffix(end, "."))
			}
			if s, ok := strings.CutSuffix(name, ".js"); ok {
				names = append(names, s+".ts") // TypeScript imports omit the extension
			}
			out.addNames(false, names...)
		case nodeStandard[own]:
		default:
			out.Incomplete = true // in node_modules
		}
	}
	return out
}

var perlStandard = words(`strict warnings utf8 lib vars feature constant integer bytes locale overload parent base fields open less sort re subs version
	autodie bigint bignum bigrat diagnostics encoding experimental if mro sigtrap threads Benchmark Carp Config Cwd Encode English Env Errno
	Exporter Fcntl FindBin Memoize POSIX Safe SelectSaver SelfLoader Socket Storable Symbol Test::More Test::Simple Time::HiRes Time::Local
	Time::Piece Time::Seconds UNIVERSAL Data::Dumper Digest::MD5 Digest::SHA File::Basename File::Compare File::Copy File::Find File::Glob
	File::Path File::Spec File::Spec::Functions File::stat File::Temp FileHandle Getopt::Long Getopt::Std Hash::Util HTTP::Tiny I18N::LangTags
	IO IO::File IO::Handle IO::Pipe IO::Select IO::Socket IO::Socket::INET IO::Zlib IPC::Cmd IPC::Open2 IPC::Open3 JSON::PP List::Util
	Math::BigFloat Math::BigInt MIME::Base64 MIME::QuotedPrint Module::Load Net::hostent Params::Check PerlIO Pod::Usage Scalar::Util
	Sys::Hostname Sys::Syslog Term::ANSIColor Term::ReadLine Text::Abbrev Text::Balanced Text::ParseWords Text::Tabs Text::Wrap Thread::Queue
	Tie::File Tie::Hash Unicode::Normalize User::grent User::pwent`)

var (
	perlUse     = regexp.MustCompile(`(?m)(?:^|[;{])\s*(?:use|no|require)\s+([A-Za-z_]\w*(?:::\w+)*)`)
	perlFile    = regexp.MustCompile(`\b(?:require|do)\s*\(?\s*(?:'([^'\n]*)'|"([^"\n]*)")`)
	perlLib     = regexp.MustCompile(`\buse\s+lib\s+([^;\n]+)`)
	perlQuoted  = regexp.MustCompile(`'([^'\n]*)'|"([^"\n]*)"|qw\s*[({\[/]([^)}\]/]*)`)
	perlHere    = regexp.MustCompile(`^(?:\$(?:FindBin::)?(?:Real)?Bin|\$\{FindBin::(?:Real)?Bin\})/?`)
	perlDynamic = regexp.MustCompile(`\b(?:require|do)\s*\(?\s*\$|@INC\b|\bPERL5LIB\b|\beval\s*\(?\s*["'$]|\b(?:require|do)\s+(?:dirname|File::)`)
)

func perl(text string) List {
	out := List{Incomplete: perlDynamic.MatchString(text)}
	libs := []string{""}
	for _, m := range perlLib.FindAllStringSubmatch(text, -1) {
		found := perlQuoted.FindAllStringSubmatch(m[1], -1)
		out.Incomplete = out.Incomplete || len(found) == 0
		for _, q := range found {
			for d := range strings.FieldsSeq(q[1] + q[2] + q[3]) {
				d = perlHere.ReplaceAllString(d, "./")
				if strings.ContainsAny(d, "$@") {
					out.Incomplete = true
					continue
				}
				libs = append(libs, strings.TrimSuffix(d, "/")+"/")
			}
		}
	}
	in := func(name string) (names []string) {
		for _, l := range libs {
			names = append(names, l+name)
		}
		return names
	}
	for _, m := range perlUse.FindAllStringSubmatch(text, -1) {
		if m[1] == "v5" || m[1] == "q" || m[1] == "qq" {
			continue
		}
		out.addNames(perlStandard[m[1]], in(strings.ReplaceAll(m[1], "::", "/")+".pm")...)
	}
	for _, m := range perlFile.FindAllStringSubmatch(text, -1) {
		name := perlHere.ReplaceAllString(m[1]+m[2], "./")
		if strings.ContainsAny(name, "$@") {
			out.Incomplete = true
			continue
		}
		out.addNames(false, in(name)...)
	}
	return out
}

var rubyStandard = words(`abbrev base64 benchmark bigdecimal bundler cgi coverage csv date delegate did_you_mean digest drb English erb etc expect fcntl
	fiddle fileutils find forwardable getoptlong io ipaddr irb json logger matrix minitest monitor mutex_m net nkf objspace observer open-uri
	open3 openssl optparse ostruct pathname pp prettyprint prime pstore psych pty rbconfig rdoc readline reline resolv rinda ripper
	rubygems securerandom set shellwords singleton socket stringio strscan syslog tempfile thread time timeout tmpdir tracer tsort un uri
	weakref yaml zlib`)

var (
	rubyLoad    = regexp.MustCompile(`(?m)\b(require_relative|require|load|autoload\s*\(?\s*:\w+\s*,)\s*\(?\s*(?:'([^'\n]*)'|"([^"\n]*)")`)
	rubyAny     = regexp.MustCompile(`(?m)(?:^|[^.\w"'])(?:require_relative|require|load|autoload)\b[ \t(]+[^=\s]`)
	rubyDynamic = regexp.MustCompile(`\$LOAD_PATH|\$:|\bRUBYLIB\b|\b(?:instance_|class_|module_)?eval\b|\bBundler\b`)
	rubyBeside  = regexp.MustCompile(`\brequire\s*\(?\s*File\.(?:expand_path|join)\s*\(?\s*(?:__dir__\s*,\s*)?(?:'([^'\n]*)'|"([^"\n]*)")`)
)

func ruby(text string) List {
	found := rubyLoad.FindAllStringSubmatch(text, -1)
	out := List{Incomplete: len(found) < len(rubyAny.FindAllString(text, -1)) || rubyDynamic.MatchString(text)}
	for _, m := range found {
		name := m[2] + m[3]
		first, _, _ := strings.Cut(name, "/")
		switch {
		case strings.Contains(name, "#{"):
			out.Incomplete = true
		case m[1] == "require_relative" || m[1] == "load" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "/"):
			out.addNames(false, name, name+".rb", name+".so")
		case rubyStandard[first]:
		default:
			out.Incomplete = true // a gem
		}
	}
	for _, m := range rubyBeside.FindAllStringSubmatch(text, -1) {
		out.addNames(false, m[1]+m[2], m[1]+m[2]+".rb")
	}
	return out
}
