// Package imports finds the files that a script visibly loads: what a shell script
// sources or runs by its path, what Python, Node, Perl and Ruby import from beside it.
//
// It reads text by patterns and runs nothing, so it finds what is written out and no
// more: not what a program puts together when it runs, what lies in a library of the
// system, or what a loaded file does. It touches no file; who calls it looks which of
// the names exist.
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

// Language is what a script is written in.
type Language int

// The languages; None is any other, and what is no script.
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
	// Names are the names that it may have, relative to the script's directory, to the
	// one in which the program was started, or to that of the first script; or absolute.
	Names []string
	// Standard says that the language brings something of that name, so that there
	// need not be a file.
	Standard bool
}

// List is what a script loads.
type List struct {
	Loads []Load
	// Open says that it loads something whose name is only known when it runs, or that
	// is not looked for beside the script.
	Open bool
}

// maxLoads bounds the list of one script.
const maxLoads = 64

// Of is the language of a file: by its name, its first line, or else by the program
// that it is given to.
func Of(name, reader string, head []byte) Language {
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
			if l := By(w); l != None {
				return l
			}
		}
		return None
	}
	if path.Ext(name) != "" || bytes.IndexByte(head, 0) >= 0 {
		return None
	}
	return By(reader)
}

// By is the language that a program reads.
func By(program string) Language {
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

// In lists what a script of a language loads.
func In(l Language, text string) (out List) {
	defer func() {
		if recover() != nil { // the shell parser's: what was not seen is said
			out.Open = true
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
		out.Loads, out.Open = out.Loads[:maxLoads], true
	}
	return out
}

// add takes note of names, each list once.
func (l *List) add(standard bool, names ...string) {
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

var pythonOwn = sync.OnceValue(func() map[string]bool { return words(pythonText) })

var (
	pyImport  = regexp.MustCompile(`(?m)(?:^|[;:])[ \t]*import[ \t]+([^#\n;]+)`)
	pyFrom    = regexp.MustCompile(`(?m)(?:^|[;:])[ \t]*from[ \t]+(\.*)[ \t]*([\w.]*)[ \t]+import[ \t]*(\([^)]*\)|[^#\n;]+)`)
	pyDynamic = regexp.MustCompile(`\b(?:__import__|importlib|runpy|execfile|imp|pkgutil|sys\.path|site\.addsitedir)\b|\b(?:exec|compile)\s*\(|\bimport[ \t]*\*?[ \t]*\(?[ \t]*$`)
	pyComment = regexp.MustCompile(`#[^\n]*`)
	pyName    = regexp.MustCompile(`^[\w.]+`)
)

func python(text string) List {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\\\n", " ")
	out := List{Open: pyDynamic.MatchString(text)}
	module := func(up, name string) {
		if name == "" {
			return
		}
		parts := strings.Split(name, ".")
		for i := range parts { // "a.b" runs a/__init__.py, too
			at := up + strings.Join(parts[:i+1], "/")
			own := up == "" && pythonOwn()[parts[0]]
			out.add(own || i < len(parts)-1, at+".py", at+"/__init__.py", at+".so")
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
			out.add(true, up+"__init__.py")
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
			out.add(true, at+name+".py", at+name+"/__init__.py") // a module, or a name in one
		}
	}
	return out
}

var nodeOwn = words(`assert async_hooks buffer child_process cluster console constants crypto dgram diagnostics_channel dns domain events fs
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
	out := List{Open: len(found) < len(nodeAny.FindAllString(text, -1)) || nodeDynamic.MatchString(text)}
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
				names = append(names, s+".ts") // as TypeScript writes it
			}
			out.add(false, names...)
		case nodeOwn[own]:
		default:
			out.Open = true // in node_modules
		}
	}
	return out
}

var perlOwn = words(`strict warnings utf8 lib vars feature constant integer bytes locale overload parent base fields open less sort re subs version
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
	out := List{Open: perlDynamic.MatchString(text)}
	libs := []string{""}
	for _, m := range perlLib.FindAllStringSubmatch(text, -1) {
		found := perlQuoted.FindAllStringSubmatch(m[1], -1)
		out.Open = out.Open || len(found) == 0
		for _, q := range found {
			for d := range strings.FieldsSeq(q[1] + q[2] + q[3]) {
				d = perlHere.ReplaceAllString(d, "./")
				if strings.ContainsAny(d, "$@") {
					out.Open = true
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
		out.add(perlOwn[m[1]], in(strings.ReplaceAll(m[1], "::", "/")+".pm")...)
	}
	for _, m := range perlFile.FindAllStringSubmatch(text, -1) {
		name := perlHere.ReplaceAllString(m[1]+m[2], "./")
		if strings.ContainsAny(name, "$@") {
			out.Open = true
			continue
		}
		out.add(false, in(name)...)
	}
	return out
}

var rubyOwn = words(`abbrev base64 benchmark bigdecimal bundler cgi coverage csv date delegate did_you_mean digest drb English erb etc expect fcntl
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
	out := List{Open: len(found) < len(rubyAny.FindAllString(text, -1)) || rubyDynamic.MatchString(text)}
	for _, m := range found {
		name := m[2] + m[3]
		first, _, _ := strings.Cut(name, "/")
		switch {
		case strings.Contains(name, "#{"):
			out.Open = true
		case m[1] == "require_relative" || m[1] == "load" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "/"):
			out.add(false, name, name+".rb", name+".so")
		case rubyOwn[first]:
		default:
			out.Open = true // a gem
		}
	}
	for _, m := range rubyBeside.FindAllStringSubmatch(text, -1) {
		out.add(false, m[1]+m[2], m[1]+m[2]+".rb")
	}
	return out
}
