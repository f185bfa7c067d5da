package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/targets/container/enginetest"
	"countersign/targets/rehearsal"
	"countersign/test/needstest"
)

// cronOf is the file outside of a test's directory that its command "logs" makes.
func cronOf(dir string) string {
	digits := strings.Map(func(r rune) rune {
		if r < '0' || r > '9' {
			return -1
		}
		return r
	}, dir)
	return "/etc/cron.d/countersign-" + digits[max(0, len(digits)-12):]
}

// previewed has the model run something until its card shows a preview. A rehearsal may take too long
// where many tests run side by side; what it is to show follows all the same when it is asked for again.
func (c *chatter) previewed(word, want string) {
	c.t.Helper()
	var bob *chatter
	for began := time.Now(); time.Since(began) < 90*time.Second; { // the machine is busy with other tests
		c.tell(word)
		ended := c.ends()
		eventually(c.t, "the card shows "+want, func() bool {
			card := c.lastCard()
			return len(c.buttons("approve:")) == 1 && (strings.Contains(card, want) || strings.Contains(card, "(took longer than 5 s)") || strings.Contains(card, "(the target didn't answer in time)") ||
				strings.Contains(card, "which a rehearsal can't show")) // and what the target was asked took too long
		}, c.shown)
		if strings.Contains(c.lastCard(), want) {
			return
		}
		if bob == nil {
			bob = c.as("bob")
		}
		bob.press("deny:")
		eventually(c.t, "the end", func() bool { return c.ends() == ended+1 }, c.shown)
	}
	c.t.Fatalf("no card shows %s\n%s", want, c.shown())
}

// shortDir is a directory whose names fit into a line of a card.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "r") //nolint:usetesting // the test's own name is too long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// lastCard is the newest card as people see it.
func (c *chatter) lastCard() string {
	for _, r := range slices.Backward(c.rows()) {
		if r.Card != nil {
			return pageOf([]row{r})
		}
	}
	return ""
}

// rehearsing is a conversation in which the model runs what people say, and a directory on the target.
func rehearsing(t *testing.T, config string) (c *chatter, dir string) {
	t.Helper()
	if os.Getuid() != 0 {
		needstest.Missing(t, "only root can make a view of the files")
	}
	dir = t.TempDir()
	for name, text := range map[string]string{"log/one": "1", "log/two": "22", "conf": "a = 1\n", "keep": ""} {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var parts []part
	sleeper := exec.CommandContext(t.Context(), "sleep", "600")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sleeper.Process.Kill(); _ = sleeper.Wait() })
	for word, command := range map[string]string{
		"logs":    "rm -rf " + dir + "/log; echo b = 2 >>" + dir + "/conf; touch " + cronOf(dir) + "; mkdir " + dir + "/new",
		"network": "rm " + dir + "/keep; curl -s http://127.0.0.1:9/",
		"kill":    fmt.Sprintf("kill %d", sleeper.Process.Pid),
		"slow":    "sleep 60",
		"hangs":   ": " + dir + "; sleep 60; rm " + dir + "/keep",
		"busy":    "test -e " + dir + "/quiet || sleep 60; rm " + dir + "/keep",
		"fails":   "rm " + dir + "/none",
		"replace": "rm() { command rm \"$@\"; touch " + dir + "/evil; }",
		"nothing": "ls -l >/dev/null; true >>" + dir + "/conf",
	} {
		parts = append(parts, part{word, []turn{{text: "I do it.", calls: []call{shell(command)}}}})
	}
	return newCrew(t, parts...).enter(t, config), dir
}

func TestACardSaysWhatARehearsalShowed(t *testing.T) {
	needstest.Long(t)
	needstest.Program(t, "curl", "apt-get install curl")
	t.Parallel()
	for name, config := range map[string]string{"plainly": plainConfig, "in a terminal": strings.Replace(plainConfig, "tmux: false, ", "", 1)} {
		t.Run(name, func(t *testing.T) {
			if name != "plainly" {
				needstest.Long(t)
			}
			c, dir := rehearsing(t, config)
			t.Cleanup(c.b.endTerminals)
			for _, tc := range []struct{ word, want string }{
				{"logs", "Rehearsed: creates " + cronOf(dir) + " (0 bytes)\ndeletes " + dir + "/log with 2 files (3 bytes); writes "},
				{"network", "Effect unknown: it uses the network, which a rehearsal can't show. File changes:\ndeletes " + dir + "/keep (0 bytes)"},
				{"kill", "Predicted: "},
				{"slow", "Effect unknown: couldn't rehearse it (took longer than 5 s)"},
				{"fails", "Rehearsed: fails with status 1: No such file or directory"},
				{"nothing", "Rehearsed: changes no files"},
			} {
				c.previewed(tc.word, tc.want)
				ended := c.ends()
				c.as("bob").press("deny:")
				eventually(t, "the end", func() bool { return c.ends() == ended+1 }, c.shown)
			}
			if _, err := os.Stat(cronOf(dir)); err == nil {
				t.Error("a rehearsal wrote to the machine")
			}
			if _, err := os.Stat(filepath.Join(dir, "log", "two")); err != nil {
				t.Errorf("a rehearsal deleted from the machine: %v", err)
			}
		})
	}
}

// What a function of the terminal makes of a command is in no rehearsal.
// A machine that was too busy for a rehearsal is asked once more, and the card has what that showed.
func TestARehearsalIsTriedOnceMore(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	c, dir := rehearsing(t, plainConfig)
	c.previewed("busy", "couldn't rehearse it (took longer than 5 s)")
	if err := os.WriteFile(filepath.Join(dir, "quiet"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second rehearsal", func() bool { return strings.Contains(c.lastCard(), "Rehearsed: deletes "+dir+"/keep (0 bytes)") }, c.shown)
	if _, err := os.Stat(filepath.Join(dir, "keep")); err != nil {
		t.Errorf("a rehearsal deleted from the machine: %v", err)
	}
}

func TestACommandThatATerminalReplacesIsNotRehearsed(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	c, dir := rehearsing(t, strings.Replace(plainConfig, "tmux: false, ", "", 1))
	t.Cleanup(c.b.endTerminals)
	c.previewed("replace", "")
	ended := c.ends()
	c.as("bob").press("approve:")
	eventually(t, "the end", func() bool { return c.ends() == ended+1 }, c.shown)
	c.previewed("logs", "Effect unknown: couldn't rehearse it (its terminal has its own functions, aliases or paths)")
	if card := c.lastCard(); !strings.Contains(card, `"rm" is a function or alias of this terminal.`) || strings.Contains(card, "deletes "+dir) {
		t.Error(card)
	}
}

// A card never waits for its rehearsal, and one that is decided before needs none.
func TestACardComesBeforeItsRehearsal(t *testing.T) {
	needstest.Program(t, "ps", "apt-get install procps")
	t.Parallel()
	c, _ := rehearsing(t, plainConfig)
	c.tell("kill") // the first one also tries whether the target can rehearse
	c.sees("Predicted: ")
	c.as("bob").press("deny:")
	eventually(t, "the end", func() bool { return c.ends() == 1 }, c.shown)
	for range 10 { // on a busy machine the rehearsal may end by itself before the press
		begin, ended := time.Now(), c.ends()
		c.tell("slow")
		c.sees("sleep 60")
		early := !strings.Contains(c.lastCard(), "took longer than")
		c.as("bob").press("deny:")
		eventually(t, "the rehearsal ended", func() bool {
			return exec.CommandContext(t.Context(), "pgrep", "-f", "bash --noprofile --norc -c sleep 60").Run() != nil
		}, c.shown)
		if early && time.Since(begin) < rehearsal.Within {
			return
		}
		eventually(t, "the end", func() bool { return c.ends() == ended+1 }, c.shown)
	}
	t.Error("the card waits for its rehearsal, or the rehearsal goes on after the decision")
}

// A rehearsal ends also when its bot is gone.
func TestARehearsalEndsWithoutItsBot(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	c, dir := rehearsing(t, plainConfig)
	runs := func() bool {
		return exec.CommandContext(t.Context(), "pgrep", "-f", "bash --noprofile --norc -c : "+dir).Run() == nil
	}
	for seen := false; !seen; { // on a busy machine the rehearsal may end by itself before anybody looks
		c.tell("hangs")
		ended := c.ends()
		eventually(t, "it is rehearsed", func() bool {
			seen = runs()
			return seen || strings.Contains(c.lastCard(), "took longer than")
		}, c.shown)
		if !seen {
			c.as("bob").press("deny:")
			eventually(t, "the end", func() bool { return c.ends() == ended+1 }, c.shown)
		}
	}
	c.b.kill()
	eventually(t, "the rehearsal ended", func() bool { return !runs() }, c.b.log.String)
}

// The steps of a plan are rehearsed one after the other: what one leaves, the next one has.
func TestACardOfAPlanSaysWhatItsStepsDoTogether(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	for name, config := range map[string]string{"plainly": plainConfig, "in a terminal": strings.Replace(plainConfig, "tmux: false, ", "", 1)} {
		t.Run(name, func(t *testing.T) {
			if os.Getuid() != 0 {
				needstest.Missing(t, "only root can make a view of the files")
			}
			dir := shortDir(t)
			c := newCrew(t, part{"both", []turn{{text: "I do it.", calls: []call{shell("mkdir " + dir + "/a; touch " + dir + "/gone"), shell("rm " + dir + "/gone && echo x >" + dir + "/a/b")}}}}).enter(t, config)
			t.Cleanup(c.b.endTerminals)
			c.previewed("both", "Rehearsed: creates the directory "+dir+"/a")
			if card := c.lastCard(); strings.Contains(card, "gone (0 bytes)") {
				t.Error(card)
			}
			ended := c.ends() // those that took too long to rehearse
			c.as("bob").press("approve:")
			eventually(t, "the end", func() bool { return strings.Count(c.page(), "exit 0") >= 2 && c.ends() == ended+1 }, c.shown)
			if strings.Contains(c.page(), "Also: ") {
				t.Error(c.page())
			}
		})
	}
}

// Where everything asks, and where rehearsals are off, a card costs the target and its cluster nothing.
func TestNothingIsPreviewedWhereThatIsOff(t *testing.T) {
	t.Parallel()
	const target = "{kind: local, tmux: false, "
	for name, tc := range map[string]struct {
		config, why string
		reads       bool
	}{
		"reads ask on the target": {strings.Replace(plainConfig, target, target+"reads: ask, ", 1), "approval is required for everything here", false},
		"reads ask":               {"policy: {reads: ask}" + plainConfig, "approval is required for everything here", false},
		"mode review":             {"agent: {mode: review}" + plainConfig, "approval is required for everything here", false},
		"rehearsals are off":      {strings.Replace(plainConfig, target, target+"rehearse: off, ", 1), "turned off for this target", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := make(chan string, 100)
			cluster := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.URL.Path }))
			t.Cleanup(cluster.Close)
			dir := shortDir(t)
			if err := os.MkdirAll(filepath.Join(dir, ".kube"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, ".kube/config"), []byte(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":"`+cluster.URL+
				`"}}],"contexts":[{"name":"shop","context":{"cluster":"c"}}],"current-context":"shop"}`), 0o600); err != nil {
				t.Fatal(err)
			}
			var parts []part
			for word, command := range map[string]string{
				"rehearsal": "rm -rf " + dir, "read": "systemctl stop cron", "cluster": "kubectl scale deployment/web --replicas=5", "dry run": "kubectl apply -f " + dir + "/.kube/config",
			} {
				parts = append(parts, part{word, []turn{{text: "I do it.", calls: []call{shell(command)}}}})
			}
			c := newCrew(t, parts...).enter(t, tc.config, "HOME="+dir)
			for _, word := range []string{"rehearsal", "read", "cluster", "dry run"} {
				c.previewed(word, "couldn't rehearse it ("+tc.why+")")
				ended := c.ends()
				c.as("bob").press("deny:")
				eventually(t, "the end", func() bool { return c.ends() == ended+1 }, c.shown)
			}
			select {
			case path := <-asked:
				if !tc.reads { // a proven read looks for the way back
					t.Error("the cluster was asked for", path)
				}
			default:
			}
		})
	}
}

// What a program has for itself in the home directory counts for the look, too: here kubectl's cluster, and its
// cache, which a look can't fill.
func TestACardSaysWhatAClusterHas(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	needstest.Program(t, "kubectl", "apt-get install kubernetes-client")
	replicas := 2
	var mu sync.Mutex
	answers := map[string]string{
		"/version":      `{"major":"1","minor":"33","gitVersion":"v1.33.0"}`,
		"/api":          `{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[]}`,
		"/api/v1":       `{"kind":"APIResourceList","groupVersion":"v1","resources":[]}`,
		"/apis":         `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}],"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}}]}`,
		"/apis/apps/v1": `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"apps/v1","resources":[{"name":"deployments","singularName":"deployment","namespaced":true,"kind":"Deployment","verbs":["get","list","patch","update"]},{"name":"deployments/scale","namespaced":true,"group":"autoscaling","version":"v1","kind":"Scale","verbs":["get","patch","update"]}]}`,
	}
	cluster := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		meta := `"metadata":{"name":"web","namespace":"default","resourceVersion":"1","creationTimestamp":"2026-01-02T03:04:05Z"}`
		switch body, known := answers[r.URL.Path]; {
		case known:
			_, _ = io.WriteString(w, body)
		case r.URL.Path == "/apis/apps/v1/namespaces/default/deployments/web":
			_, _ = fmt.Fprintf(w, `{"kind":"Deployment","apiVersion":"apps/v1",%s,"spec":{"replicas":%d}}`, meta, replicas)
		case r.URL.Path == "/apis/apps/v1/namespaces/default/deployments/web/scale":
			var wanted struct {
				Spec struct {
					Replicas *int `json:"replicas"`
				} `json:"spec"`
			}
			if r.Method != http.MethodGet && json.NewDecoder(r.Body).Decode(&wanted) == nil && wanted.Spec.Replicas != nil {
				replicas = *wanted.Spec.Replicas
			}
			_, _ = fmt.Fprintf(w, `{"kind":"Scale","apiVersion":"autoscaling/v1",%s,"spec":{"replicas":%d}}`, meta, replicas)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(cluster.Close)
	home := shortDir(t)
	if err := os.MkdirAll(filepath.Join(home, ".kube"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".kube/config"), []byte(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":"`+cluster.URL+
		`"}}],"contexts":[{"name":"shop","context":{"cluster":"c"}}],"current-context":"shop"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newCrew(t, part{"do", []turn{{text: "I do it.", calls: []call{shell("kubectl scale deployment/web --replicas=5")}}}}).enter(t, plainConfig, "HOME="+home)
	c.previewed("do", "Predicted: would scale Deployment/web in default from 2 to 5 replicas\nin the context shop\nUndo: kubectl scale deployment/web --replicas=2")
	now := func() int { mu.Lock(); defer mu.Unlock(); return replicas }
	if now() != 2 {
		t.Error("it ran before anybody approved it")
	}
	c.as("bob").press("approve:")
	eventually(t, "it is scaled", func() bool { return now() == 5 }, c.shown)
	c.press("undo:")
	c.sees("button: Approve")
	c.as("bob").press("approve:")
	eventually(t, "it is undone", func() bool { return now() == 2 }, c.shown)
}

// An account that isn't root rehearses by one program under a real sudo, and is nobody else by it.
func TestSudoRehearsesForAnotherAccount(t *testing.T) {
	needstest.Long(t)
	engine := enginetest.Docker(t)
	box := engine.Boot(t)
	inside := within(t, engine, box)
	inside("mkdir -p /usr/libexec/countersign; useradd -m deploy; umask 227; echo 'deploy ALL=(root) NOPASSWD: /usr/libexec/countersign/countersign-lock view *' >/etc/sudoers.d/deploy")
	engine.CLI(t, "cp", filepath.Join(programs(t, "countersign-lock"), "countersign-lock"), box+":/usr/libexec/countersign/countersign-lock")
	inside("chown root:root /usr/libexec/countersign/countersign-lock; chmod 755 /usr/libexec/countersign/countersign-lock; su deploy -c 'mkdir ~/old; echo 1 >~/old/f'")
	do := func(word, command string) part {
		return part{word, []turn{{text: "I do it.", calls: []call{shell(command)}}}}
	}
	c := newCrew(t, do("mine", "rm -rf /home/deploy/old; id -un >/home/deploy/who"), do("others", "echo x >/etc/cron.d/x"), do("secrets", "cat /etc/shadow >&2; exit 3"), do("lifted", "sudo rm /home/deploy/old/f"), do("group", "expiry -f")).
		enter(t, boxConfig(engine, box, "user: deploy, rehearse: sudo, "))
	before := inside("ls -lR /home/deploy /etc/cron.d")
	for _, tc := range []struct{ word, want string }{
		{"mine", "Rehearsed: deletes old with 1 file (2 bytes)\ncreates who (7 bytes)"}, // "deploy"
		{"others", "Rehearsed: fails with status "},
		{"secrets", "Effect unknown: couldn't rehearse it (it reads secrets)"},
		{"lifted", "Predicted: would remove 1 file"},
		{"group", "Effect unknown: it uses elevated privileges"}, // its group is shadow, as crontab's is crontab
	} {
		c.previewed(tc.word, tc.want)
		ended := c.ends()
		c.as("bob").press("deny:")
		eventually(t, "the end", func() bool { return c.ends() > ended }, c.shown)
	}
	if after := inside("ls -lR /home/deploy /etc/cron.d"); after != before {
		t.Errorf("a rehearsal changed the target: %s", after)
	}
}
