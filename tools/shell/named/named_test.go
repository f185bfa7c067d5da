package named

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func has(l List, name string) (Use, bool) {
	i := slices.IndexFunc(l.Files, func(f File) bool { return f.Name == name })
	if i < 0 {
		return 0, false
	}
	return l.Files[i].Use, true
}

func TestScriptsAndManifestsAreFoundWhereverTheyStand(t *testing.T) {
	for text, want := range map[string]string{
		"bash deploy.sh":                                "deploy.sh",
		"sh -x ./a.sh now":                              "./a.sh",
		". ./env.sh":                                    "./env.sh",
		"source env.sh && make":                         "env.sh",
		"python3 tools/fix.py --all":                    "tools/fix.py",
		"node x.js":                                     "x.js",
		"perl -w x.pl":                                  "x.pl",
		"ruby x.rb":                                     "x.rb",
		"./run.sh":                                      "./run.sh",
		"/opt/bin/run --fast":                           "/opt/bin/run",
		"make -f build.mk all":                          "build.mk",
		"make all":                                      "Makefile",
		"ansible-playbook -i hosts site.yml":            "site.yml",
		"kubectl apply -f deploy.yaml":                  "deploy.yaml",
		"kubectl apply --filename=deploy.yaml":          "deploy.yaml",
		"kubectl apply -fdeploy.yaml":                   "deploy.yaml",
		"psql -f migrate.sql prod":                      "migrate.sql",
		"psql prod < migrate.sql":                       "migrate.sql",
		"crontab jobs.txt":                              "jobs.txt",
		"docker compose -f stack.yml up -d":             "stack.yml",
		"docker compose up -d":                          "compose.yaml",
		"sudo -u app bash x.sh":                         "x.sh",
		"env A=b nohup ./x.sh &":                        "./x.sh",
		"bash -c 'cd /srv; source ./x.sh'":              "./x.sh",
		`bash -c "bash -c './x.sh'"`:                    "./x.sh",
		"eval './x.sh --now'":                           "./x.sh",
		"echo './x.sh' | sh":                            "./x.sh",
		"sh <<'E'\n./x.sh\nE":                           "./x.sh",
		"X=./x.sh; bash $X":                             "./x.sh",
		"curl -d @body.json https://x":                  "body.json",
		"if true; then for i in 1; do ./x.sh; done; fi": "./x.sh",
		"f() { ./x.sh; }; f":                            "./x.sh",
		"echo $(./x.sh)":                                "./x.sh",
		"cat <(./x.sh)":                                 "./x.sh",
		"coproc ./x.sh":                                 "./x.sh",
		"docker run -v ./conf.d:/etc/app.d app":         "./conf.d",
		`ba\sh 'my script.sh'`:                          "my script.sh",
		`bash "$HOME/x.sh"`:                             "~/x.sh",
		"bash ~/x.sh":                                   "~/x.sh",
		"find . -exec ./x.sh {} +":                      "./x.sh",
		"xargs ./x.sh":                                  "./x.sh",
		"timeout 5 ./x.sh":                              "./x.sh",
		"rm -f out && ./x.sh out":                       "out",
		"sudo -u touch bash x.sh":                       "x.sh",
		"bash x.sh )":                                   "x.sh", // not shell at all
		"[[ -f ./x.sh ]] && . ./x.sh":                   "./x.sh",
		"declare X=./x.sh":                              "./x.sh",
		"systemd-run --unit=x ./x.sh":                   "./x.sh",
		"LD_PRELOAD=./x.so ls":                          "./x.so",
	} {
		if use, ok := has(Find(text), want); !ok || use != Content && !strings.HasPrefix(text, "find ") {
			t.Errorf("%q: %q is not found with its content: %+v", text, want, Find(text))
		}
	}
}

func TestTheContentOfWhatIsOnlyWrittenOrRemovedDoesNotCount(t *testing.T) {
	for text, want := range map[string]Use{
		"rm -f x":           Target,
		"sudo rm x":         Target,
		"echo 1 > x":        Target,
		"echo 1 >> x":       Target,
		"echo 1 &> x":       Target,
		"date | tee -a x":   Target,
		"chmod +x x":        Target,
		"truncate -s 0 x":   Target,
		"grep -c a x > out": Data,
		"tail -n 5 x | sh":  Data,
		"cp x /etc/y":       Data,
		"./x > x":           Target, // ./x is the program, and x the file
		"bash x > x":        Content,
		"rm x; . x":         Content,
		"cat < x":           Content,
	} {
		if use, ok := has(Find(text), "x"); !ok || use != want {
			t.Errorf("%q: x has the use %d (%v), want %d", text, use, ok, want)
		}
	}
	if use, ok := has(Find("./rm x"), "./rm"); !ok || use != Content {
		t.Errorf("a program that is called like one that only removes: %d %v", use, ok)
	}
}

func TestDirectoriesThatTheTextChangesToAreFound(t *testing.T) {
	for text, want := range map[string]string{
		"cd /srv/app && ./run.sh":       "/srv/app",
		"make -C build all":             "build",
		"terraform -chdir=prod apply":   "prod",
		"kubectl apply -k overlays/dev": "overlays/dev",
		"git -C repo pull":              "repo",
		"bash -c 'cd /srv; ./run.sh'":   "/srv",
	} {
		if got := Find(text).Dirs; !slices.Contains(got, want) {
			t.Errorf("%q: %q", text, got)
		}
	}
}

func TestEveryPlaceThatARelativeNameMayMeanIsFound(t *testing.T) {
	for text, want := range map[string]string{
		"cd a; cd b; rm x":                    "a a/b b",
		"cd a; cd /b; cd c":                   "a /b a/c /b/c c",
		"(cd a; ls); (cd b; cd c)":            "a b c b/c",
		"x=$(cd a; pwd); cd b":                "a b",
		"cd a/..":                             "a/..",
		"cd l; cd ..":                         "l l/.. ..",
		"cd":                                  "~",
		"cd ~/x; cd y":                        "~/x y ~/x/y",
		"builtin cd -P -- a":                  "a",
		"git -C a x; git -C b y":              "a b",
		"git -C a -C b x":                     "a b a/b",
		"cd s; make -C a; make -C b":          "s a s/a b s/b",
		"make -Ca":                            "a",
		"sudo -D a x":                         "a",
		"env --chdir=a x":                     "a",
		"env --chdir a x":                     "a",
		"f() { cd a; }; cd b; f":              "a b a/b a/a b/b b/a a/a/b a/b/a a/b/b b/a/b a/b/a/b",
		"for i in 1 2; do cd a; rm x; done":   "a a/a",
		"cd a && { cd b || cd c; } && rm x":   "a b a/b c a/c b/c a/b/c",
		"cd \"$X\"; cd a":                     "a",
		"bash -c 'cd a; rm x'; cd b":          "a b a/b",
		"kubectl apply -k a --kustomize=b -f": "a b a/b",
	} {
		got := Find(text).Dirs
		dirs := strings.Fields(want)
		slices.Sort(got)
		slices.Sort(dirs)
		if !slices.Equal(got, dirs) {
			t.Errorf("%q: %q, want %q", text, got, dirs)
		}
	}
}

func TestTheDirectoryBeforeWhatIsNotKnownIsFound(t *testing.T) {
	for text, want := range map[string]string{
		"rm -rf /srv/old/*":                   "/srv/old",
		"rm -rf /srv/old/?x":                  "/srv/old",
		"rm -rf a/[ab]":                       "a",
		"rm -rf a/{b,c}":                      "a",
		`rm -rf "/srv/$x"`:                    "/srv",
		`rm -rf "$HOME"/*`:                    "~",
		`rm -rf ~/a/$(ls)`:                    "~/a",
		"cp x --target=/srv/*":                "/srv",
		"cat > /srv/$x":                       "/srv",
		"for f in /srv/*; do :; done":         "/srv",
		"find . -exec rm a/{} +":              "a",
		`D=/srv; rm -rf "$D/x"/*`:             "/srv/x",
		`D=/srv; rm -rf "${D}"/x/$Y`:          "/srv/x",
		`for d in a b; do rm -r $d/c/*; done`: "b/c",
		`rm -rf $PWD/a/*`:                     "./a",
		"rm -rf -- -a":                        "./-a",
		"rm -rf ..":                           "..",
		"bash -c 'rm -rf /srv/*'":             "/srv",
	} {
		if _, ok := has(Find(text), want); !ok {
			t.Errorf("%q: %q is not found: %+v", text, want, Find(text).Files)
		}
	}
}

func TestWhatATextMakesIsFoundOnlyWhereItDoesNoMore(t *testing.T) {
	for text, want := range map[string]string{
		"mkdir -p a/b && cd a/b && touch x":     "a/b a",
		"install -d a && cp x a":                "a",
		"sudo mkdir /srv/a":                     "/srv/a /srv",
		"install x a":                           "",
		"mkdir a && rm -rf a":                   "",
		"mkdir a && sudo -u x rm -rf a":         "",
		"mkdir a && bash x.sh":                  "",
		"mkdir a && ./touch":                    "",
		"mkdir a && $X":                         "",
		"mkdir a && find a -delete":             "",
		"mkdir a && echo a | xargs rm":          "",
		"touch() { rm -rf a; }; mkdir a; touch": "",
		"mkdir a )":                             "",
		"rm x":                                  "",
	} {
		if got := strings.Join(Find(text).MadeDirs, " "); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestNamesThatAreOnlyKnownLaterAreNotGuessed(t *testing.T) {
	for _, text := range []string{"bash $X", "bash *.sh", "bash a?", `bash "$X/y"`, "bash `x`"} {
		for _, f := range Find(text).Files {
			if f.Name != "bash" && f.Name != "x" {
				t.Errorf("%q: %q", text, f.Name)
			}
		}
	}
}

func TestAListIsBoundedAndSaysSo(t *testing.T) {
	var b strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&b, "./f%d ", i)
	}
	if l := Find(b.String()); len(l.Files) != maxFiles || !l.Truncated {
		t.Errorf("%d files, more %v", len(l.Files), l.Truncated)
	}
	if l := Find("ls a"); l.Truncated {
		t.Error("a short text has more")
	}
}

func FuzzIn(f *testing.F) {
	for _, s := range []string{"bash x", "cd a; . b", "sh -c 'sh -c \"x y\"'", "cat <<E\nx\nE", "\xff", "'", "a=@b:c=d", "${HOME}/x", "sudo -u x", "x() { y; }"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l := Find(text)
		if len(l.Files) > maxFiles || len(l.Dirs) > maxDirs {
			t.Fatalf("%q: %d files and %d directories", text, len(l.Files), len(l.Dirs))
		}
		seen := map[string]bool{}
		for _, x := range l.Files {
			if x.Name == "" || len(x.Name) > maxName || strings.ContainsRune(x.Name, 0) || seen[x.Name] {
				t.Fatalf("%q: %q", text, x.Name)
			}
			seen[x.Name] = true
		}
		again := Find(text)
		if !reflect.DeepEqual(l.Files, again.Files) || !slices.Equal(l.Dirs, again.Dirs) || l.Truncated != again.Truncated {
			t.Fatalf("%q gives two lists", text)
		}
	})
}
