package policy

import (
	"slices"
	"strings"
	"testing"

	"countersign/approvals"
)

// max_items, max_bytes, allowed_modes, blocked_schemes, blocked_hosts,
// allowed_extensions, blocked_patterns, timeout_seconds.
func TestConstraints(t *testing.T) {
	command := func(s string) func(*Input) {
		return func(in *Input) { in.Kind, in.Path, in.Command, in.Args = "shell", "", s, "" }
	}
	call := func(args string) func(*Input) { return func(in *Input) { in.Command, in.Args = "", args } }
	path := func(s string) func(*Input) { return func(in *Input) { in.Path = s } }
	for _, tc := range []struct {
		rule, constraint string
		in               func(*Input)
		says             string // "" allows it
	}{
		{"a pattern without a slash fits the file's name", "{blocked_patterns: ['*.pem']}", path("/etc/ssl/x.pem"), "blocked pattern"},
		{"a pattern without a slash fits a folder", "{blocked_patterns: [.ssh]}", path("/home/a/.ssh/config"), "blocked pattern"},
		{"a pattern with slashes fits the whole path", "{blocked_patterns: ['/etc/*']}", path("/etc/ssl/x"), "blocked pattern"},
		{"a pattern with slashes and another path", "{blocked_patterns: ['/etc/*']}", path("/srv/etc/x"), ""},
		{"a path in disguise", "{blocked_patterns: ['/etc/*']}", path("/tmp/../etc//x"), "blocked pattern"},
		{"a word of a command", "{blocked_patterns: ['*.pem']}", command("cat 'x.pem'; ls"), "x.pem"},
		{"a whole command", "{blocked_patterns: ['git push*']}", command("git push --force"), "blocked pattern"},
		{"a text among the arguments", "{blocked_patterns: ['*.pem']}", call(`{"files":[{"name":"a/x.pem"}]}`), "blocked pattern"},
		{"what is written names nothing", "{blocked_patterns: ['*.pem'], blocked_hosts: [a.test], blocked_schemes: [file]}", func(in *Input) {
			in.Command, in.Args = "see http://a.test/x.pem or file:x", `{"path":"/tmp/a.md","content":"see http://a.test/x.pem or file:x"}`
		}, ""},
		{"arguments that are not written do", "{blocked_patterns: ['*.pem']}", func(in *Input) { in.Command, in.Args = "x.pem", `{"content":"x.pem","also":"y.pem"}` }, "y.pem"},
		{"nothing blocked", "{blocked_patterns: ['*.pem']}", command("cat x.txt"), ""},
		{"a path in disguise, with a blank", "{blocked_patterns: ['/etc/my file']}", path("/tmp/../etc/my file"), "blocked pattern"},
		{"a path in disguise in a command", "{blocked_patterns: ['/etc/x']}", command("cat /tmp/../etc/x now"), "blocked pattern"},
		{"a command that names a file is still looked at", "{blocked_patterns: ['*.pem']}", func(in *Input) { in.Kind, in.Command, in.Args = "shell", "cat x.pem", `{"command":"cat x.pem"}` }, "x.pem"},
		{"a change of no file is looked at", "{blocked_patterns: ['*.pem']}", func(in *Input) { in.Path, in.Command, in.Args = "", "x.pem", `{"content":"x.pem"}` }, "x.pem"},

		{"an ending that is allowed", "{allowed_extensions: [md, .TXT]}", path("/a/b.txt"), ""},
		{"an ending in capitals", "{allowed_extensions: [.md]}", path("/a/B.MD"), ""},
		{"another ending", "{allowed_extensions: [.md]}", path("/a/b.md.sh"), "does not end in"},
		{"no ending", "{allowed_extensions: [.md]}", path("/a/Makefile"), "does not end in"},
		{"no ending, which is allowed", "{allowed_extensions: [.md, '']}", path("/a/Makefile"), ""},
		{"a path among the arguments", "{allowed_extensions: [.md]}", func(in *Input) { in.Path, in.Args = "", `{"path":"x.sh"}` }, "x.sh"},
		{"no path to be seen", "{allowed_extensions: [.md]}", func(in *Input) { in.Path, in.Args = "", "{}" }, "names no file"},

		{"a host", "{blocked_hosts: [metadata.internal]}", call(`{"url":"http://metadata.internal/x"}`), "metadata.internal"},
		{"a host with user, port and capitals", "{blocked_hosts: [metadata.internal]}", call(`{"url":"https://a:b@Metadata.Internal.:8080/x"}`), "blocked"},
		{"a host that is written in code", "{blocked_hosts: [metadata.internal]}", call(`{"url":"http://%6detadata.internal"}`), "blocked"},
		{"what is below a host", "{blocked_hosts: [corp.example]}", call(`{"url":"http://wiki.corp.example"}`), "blocked"},
		{"a glob of hosts", "{blocked_hosts: ['169.254.*']}", call(`{"url":"http://169.254.169.254/latest"}`), "blocked"},
		{"an address of version 6", "{blocked_hosts: ['fd00:ec2::254']}", call(`{"url":"http://[fd00:ec2::254]/x"}`), "blocked"},
		{"a host in a command", "{blocked_hosts: [corp.example]}", command("curl -s corp.example/x"), "blocked"},
		{"a host that only ends alike", "{blocked_hosts: [corp.example]}", call(`{"url":"http://notcorp.example"}`), ""},
		{"a host in the path of another", "{blocked_hosts: [corp.example]}", call(`{"url":"http://a.test/corp.example"}`), ""},
		{"a path is no host", "{blocked_hosts: [internal]}", call(`{"file":"/etc/x.internal"}`), ""},

		{"a scheme", "{blocked_schemes: [file]}", call(`{"url":"FILE:///etc/passwd"}`), "file:"},
		{"a scheme without slashes", "{blocked_schemes: ['data:']}", call(`{"url":"data:text/plain,x"}`), "data:"},
		{"a scheme after a blank", "{blocked_schemes: ['file://']}", call(`{"url":" file:///x"}`), "file:"},
		{"a scheme in a command", "{blocked_schemes: [ftp]}", command("curl ftp://a.test"), "ftp:"},
		{"another scheme", "{blocked_schemes: [file]}", call(`{"url":"https://a.test/file"}`), ""},

		{"a mode", "{allowed_modes: [append]}", call(`{"mode":"append"}`), ""},
		{"another mode", "{allowed_modes: [append]}", call(`{"mode":"overwrite"}`), "overwrite"},
		{"no mode", "{allowed_modes: [append]}", call(`{}`), `"default"`},
		{"no mode, which is allowed", "{allowed_modes: [append, default]}", call(`{}`), ""},
		{"a mode that is no text", "{allowed_modes: [append]}", call(`{"mode":["append"]}`), "no text"},
		{"a mode that nobody sees", "{allowed_modes: [append, default]}", call(`[]`), "cannot be seen"},
		{"a mode in arguments that are nothing", "{allowed_modes: [append, default]}", call(`null`), "cannot be seen"},

		{"few entries", "{max_items: 2}", call(`{"edits":[1,2],"limit":2}`), ""},
		{"many entries", "{max_items: 2}", call(`{"edits":[1,2,3]}`), "3 entries"},
		{"many entries further down", "{max_items: 2}", call(`{"a":{"b":[[1,2,3]]}}`), "3 entries"},
		{"many results", "{max_items: 2}", call(`{"max_results":3}`), "max_results is 3"},
		{"a number that is none", "{max_items: 2}", call(`{"limit":"3"}`), "not a number"},
		{"a number below zero", "{max_items: 2}", call(`{"limit":-1}`), "not a number"},
		{"entries that nobody sees", "{max_items: 2}", command("ls"), "cannot be seen"},
		{"no limit is none", "{max_items: 2}", call(`{"limit":null}`), ""},
		{"a limit of nothing", "{max_items: 2}", call(`{"limit":0}`), ""},
		{"lists as deep as can be seen", "{max_items: 2}", call(`{"a":` + strings.Repeat("[", 20) + strings.Repeat("]", 20) + `}`), ""},
		{"lists one deeper", "{max_items: 2}", call(`{"a":` + strings.Repeat("[", 21) + strings.Repeat("]", 21) + `}`), "cannot be seen"},
		{"objects one deeper", "{max_items: 2}", call(strings.Repeat(`{"a":`, 21) + "1" + strings.Repeat("}", 21)), "cannot be seen"},
		{"objects as deep as can be seen", "{max_items: 2}", call(strings.Repeat(`{"a":`, 20) + "1" + strings.Repeat("}", 20)), ""},
		{"arguments too deep to see", "{max_items: 2}", call(`{"a":` + strings.Repeat("[", 30) + strings.Repeat("]", 30) + `}`), "cannot be seen"},

		{"few bytes", "{max_bytes: 5}", command("hello"), ""},
		{"many bytes", "{max_bytes: 4}", command("hello"), "5 bytes"},
		{"many bytes to read", "{max_bytes: 4}", call(`{"max_bytes":5}`), "max_bytes is 5"},

		{"a short time", "{timeout_seconds: 60}", call(`{"timeout":60}`), ""},
		{"a long time", "{timeout_seconds: 60}", call(`{"timeout":61}`), "timeout is 61"},
		{"a long time in milliseconds", "{timeout_seconds: 60}", call(`{"timeout_ms":60001}`), "timeout_ms"},
		{"a short time in milliseconds", "{timeout_seconds: 60}", call(`{"timeout_ms":60000}`), ""},
		{"no time at all, as a number", "{timeout_seconds: 60}", call(`{"timeout":0}`), ""},
		{"no time at all, as text", "{timeout_seconds: 60}", call(`{"wait":"0s"}`), ""},
		{"a time that is null", "{timeout_seconds: 60}", call(`{"timeout":null}`), "at most 60 seconds"},
		{"two times, one long", "{timeout_seconds: 60}", call(`{"timeout":1,"timeout_seconds":61}`), "timeout_seconds"},
		{"a wait", "{timeout_seconds: 60}", call(`{"wait":"1m"}`), ""},
		{"a wait as text of a number", "{timeout_seconds: 60}", call(`{"wait":"60"}`), ""},
		{"a long wait", "{timeout_seconds: 60}", call(`{"wait":"61s"}`), "wait is 61s"},
		{"a wait without end", "{timeout_seconds: 60}", call(`{"wait":true}`), "at most 60 seconds"},
		{"no wait", "{timeout_seconds: 60}", call(`{"wait":false}`), "at most 60 seconds"},
		{"a wait that is no time", "{timeout_seconds: 60}", call(`{"wait":"long"}`), "not a time"},
		{"a wait below zero", "{timeout_seconds: 60}", call(`{"wait":"-1s"}`), "not a time"},
		{"a time that is not a number", "{timeout_seconds: 60}", call(`{"timeout":"NaN"}`), "not a time"},
		{"no time", "{timeout_seconds: 60}", call(`{}`), "at most 60 seconds"},
		{"a time that nobody sees", "{timeout_seconds: 60}", command("sleep 1"), "cannot be seen"},

		{"another tool is free", "{max_bytes: 1}", func(in *Input) { in.Tool = "edit" }, ""},
		{"everything at once", "{max_bytes: 9, max_items: 1, blocked_patterns: [x]}", call(`{"edits":[1,2]}`), "max_items"},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			in := note(tc.in)
			d := must(t, "constraints: {write_file: "+tc.constraint+"}").Decide(in)
			if tc.says == "" {
				if d.Lane != approvals.Ask {
					t.Fatalf("%+v", d)
				}
				return
			}
			if d.Lane != approvals.Forbid || !strings.Contains(d.Sentence, tc.says) || !strings.HasPrefix(d.Rule, "constraint: write_file.") {
				t.Fatalf("%+v", d)
			}
		})
	}
}

func FuzzConstraint(f *testing.F) {
	f.Add("http://a:b@[::1]:80/x", `{"a":[1,{"b":"file:x"}]}`)
	f.Add("cat /etc/x | grep %zz", "")
	c, err := Constraint{BlockedPatterns: []string{"*.pem"}, AllowedExtensions: []string{"md"}, BlockedHosts: []string{"a.b"}, BlockedSchemes: []string{"x"}, AllowedModes: []string{"m"}, MaxItems: 1, MaxBytes: 1, TimeoutSeconds: 1}.ready()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, command, args string) {
		facts := Facts{Tool: "t", Command: command, Args: args}
		key, why := c.broken(facts)
		if again, same := c.broken(facts); again != key || same != why {
			t.Fatalf("%q, then %q", why, same)
		}
		if strings.Contains(why, "\n") {
			t.Fatalf("not one line: %q", why)
		}
		if strings.Contains(command, "http://a.b/") && !slices.Contains([]string{"blocked_patterns", "allowed_extensions", "blocked_schemes", "blocked_hosts"}, key) {
			t.Fatalf("%q: %s", command, key)
		}
	})
}

func TestArgumentsThatCannotBeSeenAreRefused(t *testing.T) {
	c, err := Constraint{BlockedPatterns: []string{"/etc/*"}}.ready()
	if err != nil {
		t.Fatal(err)
	}
	deep := strings.Repeat(`{"a":`, 25) + `"/etc/passwd"` + strings.Repeat("}", 25)
	for _, raw := range []string{deep, `"/etc/passwd"`, "{"} {
		if key, _ := c.broken(Facts{Tool: "x", Args: raw}); key == "" {
			t.Errorf("%s passes", raw)
		}
	}
}
