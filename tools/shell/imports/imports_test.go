package imports

import (
	"slices"
	"strings"
	"testing"
)

func TestWhatAScriptLoadsIsFound(t *testing.T) {
	for lang, rows := range map[Language]map[string]string{
		Shell: {
			". ./lib.sh":                                   "./lib.sh",
			"source lib.sh && x":                           "lib.sh",
			". \"$(dirname \"$0\")/lib.sh\"":               "./lib.sh",
			". \"${BASH_SOURCE%/*}/lib/a.sh\"":             "./lib/a.sh",
			"D=$(cd \"$(dirname \"$0\")\" && pwd)\n. $D/a": "./a",
			". \"$UNKNOWN/a\"":                             "./a",
			"if x; then . ./a; fi":                         "./a",
			"bash b.sh now":                                "b.sh",
			"./c.sh":                                       "./c.sh",
			"\"$D/c.sh\" x":                                "./c.sh",
			"sudo -u x python3 d.py":                       "d.py",
			"exec ./e":                                     "./e",
			"x() { . 'my lib'; }":                          "my lib",
		},
		Python: {
			"import helper":                           "helper.py",
			"import os, helper as h":                  "helper.py",
			"import a.b":                              "a/b.py",
			"import a.b as c":                         "a/__init__.py",
			"from helper import run":                  "helper.py",
			"from a import b":                         "a/b.py",
			"from a.b import c":                       "a/b/__init__.py",
			"from . import c":                         "./c.py",
			"from .c import d":                        "./c.py",
			"from ..c import d":                       "./../c.py",
			"from a import (\n  b, # x\n  c as d,\n)": "a/c.py",
			"try:\n    import helper\nexcept E: pass": "helper.py",
			"x = 1; import helper":                    "helper.py",
			"if x: import helper":                     "helper.py",
			"from a import \\\n  b":                   "a/b.py",
			"import os":                               "os.py", // where it is shadowed
			"import\thelper\r\n":                      "helper.py",
		},
		Node: {
			"const x = require('./x')":            "./x.js",
			`require("../y.json")`:                "../y.json",
			"require(`./x`)":                      "./x/index.js",
			"import x from './x.mjs'":             "./x.mjs",
			"import { a,\n  b } from \"./x\"":     "./x.ts",
			"import './x'":                        "./x.js",
			"export * from './x'":                 "./x.js",
			"await import('./x')":                 "./x.js",
			"import x, * as y from '/srv/x.js'":   "/srv/x.js",
			"require('.')":                        "./index.js",
			"import type { A } from './types.js'": "./types.ts",
		},
		Perl: {
			"use lib 'lib';\nuse My::Mod;":                           "lib/My/Mod.pm",
			"use FindBin; use lib \"$FindBin::Bin/../l\";\nuse Mod;": "./../l/Mod.pm",
			"use lib qw(a b);\nrequire Mod;":                         "b/Mod.pm",
			"require './x.pl';":                                      "./x.pl",
			"do \"./conf.pl\" or die":                                "./conf.pl",
			"use strict;":                                            "strict.pm", // where it is shadowed
		},
		Ruby: {
			"require_relative 'x'":                     "x.rb",
			"require_relative \"../lib/x\"":            "../lib/x.rb",
			"require './x'":                            "./x.rb",
			"load 'x.rb'":                              "x.rb",
			"autoload :X, './x'":                       "./x.rb",
			"require File.expand_path('x', __dir__)":   "x.rb",
			"require File.join(__dir__, 'lib/x.rb')":   "lib/x.rb",
			"require File.expand_path 'x.rb', __dir__": "x.rb",
		},
	} {
		for text, want := range rows {
			l := Loads(lang, text)
			if !slices.ContainsFunc(l.Loads, func(o Load) bool { return slices.Contains(o.Names, want) }) {
				t.Errorf("%q: %q is not found: %+v", text, want, l)
			}
		}
	}
}

func TestWhatIsNotFoundIsSaid(t *testing.T) {
	for text, want := range map[string]struct {
		lang Language
		open bool
	}{
		`. "$X"`: {Shell, true}, ". /opt/$X/a": {Shell, true}, `for f in d/*.sh; do . "$f"; done`: {Shell, true}, ". d/*.sh": {Shell, true},
		"not ( shell": {Shell, true}, "ls; grep x y": {Shell, false}, `. "$(dirname "$0")/a"`: {Shell, false}, `. "$PWD/a"`: {Shell, false},
		"import importlib": {Python, true}, "__import__(x)": {Python, true}, "exec(open('x').read())": {Python, true}, "sys.path.insert(0, x)": {Python, true},
		"import os, sys\nprint(1)": {Python, false}, "from os import path": {Python, false}, "cursor.execute(x)": {Python, false},
		"require(x)": {Node, true}, "import(x)": {Node, true}, "require('lodash')": {Node, true}, "import x from 'lodash/y'": {Node, true},
		"require(`./${x}`)": {Node, true}, "require('fs'); require('node:fs/promises')": {Node, false}, "import fs from 'fs'": {Node, false},
		"const r = require; r('./x')": {Node, true}, "require.resolve('x')": {Node, true},
		"require $x;": {Perl, true}, "do $x;": {Perl, true}, "use lib $x;": {Perl, true}, "push @INC, 'x';": {Perl, true}, "eval \"x\"": {Perl, true},
		"use strict; use Getopt::Long;": {Perl, false}, "do { 1 } while 0;": {Perl, false},
		"require x": {Ruby, true}, "require 'rails'": {Ruby, true}, "require_relative \"#{x}\"": {Ruby, true}, "Dir['*'].each { |f| require f }": {Ruby, true},
		"require 'json'\nrequire 'net/http'": {Ruby, false}, "$:.unshift 'x'": {Ruby, true}, "eval x": {Ruby, true},
		"anything": {None, false},
	} {
		if got := Loads(want.lang, text); got.Incomplete != want.open {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

func TestThatSomethingOfTheLanguageNeedNotBeThere(t *testing.T) {
	for text, lang := range map[string]Language{"import os.path": Python, "from os import path": Python, "use strict;": Perl, "use POSIX qw(x);": Perl, "use 5.010;": Perl, "use v5.36;": Perl} {
		for _, l := range Loads(lang, text).Loads {
			if !l.Standard {
				t.Errorf("%q: %+v", text, l)
			}
		}
	}
	for text, lang := range map[string]Language{"import mine": Python, "from . import x\nimport mine.sub": Python, "use Mine;": Perl, "require './x.pl'": Perl, ". ./x": Shell, "require('./x')": Node} {
		if !slices.ContainsFunc(Loads(lang, text).Loads, func(l Load) bool { return !l.Standard }) {
			t.Errorf("%q: %+v", text, Loads(lang, text))
		}
	}
}

func TestTheLanguageOfAFile(t *testing.T) {
	for _, tt := range []struct {
		name, reader, head string
		want               Language
	}{
		{"/w/a.py", "", "", Python}, {"/w/a.sh", "cat", "", Shell}, {"/w/a", "", "#!/bin/sh -e\n", Shell}, {"/w/a", "", "#!/usr/bin/env -S python3 -u\n", Python},
		{"/w/a", "python3.11", "import x", Python}, {"/w/a", ".", "x", Shell}, {"/w/a", "source", "x", Shell}, {"/w/a", "perl5", "", Perl},
		{"/w/a", "kubectl", "x", None}, {"/w/a.yml", "bash", "x", None}, {"/w/a", "bash", "\x7fELF\x00", None}, {"/w/a", "", "", None},
		{"/w/a", "python3", "#!/bin/sed -f\n", None}, {"/w/a.mjs", "", "", Node}, {"/w/a.rb", "", "", Ruby},
	} {
		if got := Detect(tt.name, tt.reader, []byte(tt.head)); got != tt.want {
			t.Errorf("%+v: %d", tt, got)
		}
	}
}

func FuzzIn(f *testing.F) {
	for _, s := range []string{"import a", "from .. import (a, b", ". \"$(dirname $0)/x\"", "require('x", "use lib qw(", "require_relative '", "\xff", ". ''\\\n'"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for l := None; l <= Ruby; l++ {
			got := Loads(l, text)
			if len(got.Loads) > maxLoads {
				t.Fatal("too many")
			}
			for _, o := range got.Loads {
				for _, n := range o.Names {
					if n == "" || strings.ContainsAny(n, "\x00\n") {
						t.Fatalf("%q loads %q", text, n)
					}
				}
			}
		}
	})
}
