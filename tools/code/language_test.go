package code

import "testing"

func TestTheLanguageOfAFile(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"main.go", "", "Go"},
		{"dir/Makefile", "", "Makefile"},
		{"config.sh.in", "", "Shell"},
		{"noidea", "some words", ""},
		{"noidea", "<?xml version='1.0'?>", "XML"},
		{"run", "#!/usr/bin/env -S FOO=1 python3.11 -u\n", "Python"},
		{"run", "#!/bin/sh\n", "Shell"},
		{"run", "#!/opt/nobody/knows\n", ""},
		{"run", "# -*- mode: ruby -*-\n", "Ruby"},
		{"run", "# comment -*- shell-script -*-\n", "Shell"},
		{"run", "x\n# vim: set ts=8 ft=python :\n", "Python"},
		{"old.cgi", "#!/usr/bin/python\n", "Python"},
		{"a.h", "int f(void);\n", "C"},
		{"a.h", "namespace a {\n}\n", "C++"},
		{"a.h", "@interface A\n@end\n", "Objective-C"},
		{"a.m", "function y = f(x)\n", "MATLAB"},
		{"a.m", "@implementation A\n", "Objective-C"},
		{"a.pl", "use strict;\n", "Perl"},
		{"a.pl", "parent(X, Y) :- child(Y, X).\n", "Prolog"},
		{"a.ts", "const a: number = 1\n", "TypeScript"},
		{"a.ts", "<?xml version=\"1.0\"?><!DOCTYPE TS>\n", "XML"},
		{"a.sql", "SELECT 1;\n", "SQL"},
		{"a.sql", "CREATE FUNCTION f() RETURNS int AS $$ BEGIN END $$ LANGUAGE plpgsql;\n", "PLpgSQL"},
		{"a.sql", "DECLARE @x int\nGO\n", "TSQL"},
		{"api.yaml", "openapi: 3.1.0\n", "OASv3-yaml"},
		{"api.json", "{\n \"swagger\": \"2.0\"}\n", "OASv2-json"},
		{"a.yaml", "a: 1\n", "YAML"},
		{"de.mo", "\xde\x12\x04\x95\x00\x00", ""},
	} {
		if got := language(c.name, []byte(c.text)); got != c.want {
			t.Errorf("%s %q is %q, want %q", c.name, c.text, got, c.want)
		}
	}
}

func TestEveryLanguageHasAType(t *testing.T) {
	for name := range languages().types {
		if typeOf(name) == "" {
			t.Errorf("%s has no type", name)
		}
	}
	for _, lang := range []string{"PLpgSQL", "MATLAB", "Prolog", "TSQL", "OASv2-json", "OASv3-yaml", "XML"} {
		if typeOf(lang) == "" {
			t.Errorf("%s has no type", lang)
		}
	}
}
