package slack_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/slack"
	"countersign/adapters/slack/slackfake"
	"countersign/test/needstest"
	"countersign/test/npmtest"
)

// argumentTypes are the types that @slack/web-api 8.2.0 gives to the arguments
// of the methods that write. The bot uses no other method that writes.
func argumentTypes() map[string]string {
	return map[string]string{
		"chat.postMessage":                      "ChatPostMessageArguments",
		"chat.update":                           "ChatUpdateArguments",
		"chat.delete":                           "ChatDeleteArguments",
		"chat.postEphemeral":                    "ChatPostEphemeralArguments",
		"chat.startStream":                      "ChatStartStreamArguments",
		"chat.appendStream":                     "ChatAppendStreamArguments",
		"chat.stopStream":                       "ChatStopStreamArguments",
		"views.open":                            "ViewsOpenArguments",
		"views.publish":                         "ViewsPublishArguments",
		"blocks.validate":                       "BlocksValidateArguments",
		"conversations.open":                    "ConversationsOpenArguments",
		"files.getUploadURLExternal":            "FilesGetUploadURLExternalArguments",
		"files.completeUploadExternal":          "FilesCompleteUploadExternalArguments",
		"agents.sessions.setStatus":             "AgentsSessionsSetStatusArguments",
		"assistant.threads.setStatus":           "AssistantThreadsSetStatusArguments",
		"assistant.threads.setSuggestedPrompts": "AssistantThreadsSetSuggestedPromptsArguments",
	}
}

// readingMethods are the methods whose arguments are ids and cursors; they are
// not checked here.
var readingMethods = []string{
	"apps.connections.open", "auth.test", "bots.info", "conversations.info", "conversations.replies", "conversations.history", "users.info",
	"usergroups.list", "usergroups.users.list",
}

// respondType is what a response_url takes. @slack/web-api does not name it;
// @slack/bolt makes it of the arguments of chat.postMessage in this way
// (RespondArguments in bolt-js, src/types/utilities.ts).
const respondType = `type Without<T, K extends PropertyKey> = T extends unknown ? Omit<T, K> : never;
type Respond = Without<ChatPostMessageArguments, 'channel' | 'text'> & {
  text?: string;
  response_type?: 'in_channel' | 'ephemeral';
  replace_original?: boolean;
  delete_original?: boolean;
};
`

// exception is one argument, with one value, that the bot sends although the
// type of the method's arguments does not have it.
type exception struct{ typ, argument, value string }

// exceptions to the types of @slack/web-api 8.2.0. Each is one property with one
// value; one that nothing needs is an error.
func exceptions() []exception {
	return []exception{
		// mrkdwn is a field of every message's payload ("Reference: message
		// payloads" in Slack's documentation); these types have it for
		// chat.postMessage alone. Without it Slack reads the text as markup.
		{"ChatUpdateArguments", "mrkdwn", "false"},
		{"ChatPostEphemeralArguments", "mrkdwn", "false"},
	}
}

// excuse takes the exceptions out of payloads, and what is the same for all
// blocks: a list's offset, which docs.slack.dev/reference/block-kit/block-elements/rich-text-list-element
// documents as a number and the type RichTextList of @slack/types 3.2.0 lacks.
// What has another type or value stays where it is, for the compiler to find.
func excuse(t *testing.T, payloads []payload) {
	t.Helper()
	needed := map[exception]bool{}
	for _, p := range payloads {
		for _, o := range typedObjects(p.typ, p.value, true) {
			n, isNumber := o.object["offset"].(json.Number)
			if i, err := n.Int64(); o.object["type"] == "rich_text_list" && isNumber && err == nil && i >= 0 {
				delete(o.object, "offset")
			}
		}
		args, _ := p.value.(map[string]any)
		for _, e := range exceptions() {
			v, has := args[e.argument]
			if !has || p.typ != e.typ {
				continue
			}
			if data, err := json.Marshal(v); err == nil && string(data) == e.value {
				delete(args, e.argument)
				needed[e] = true
			}
		}
	}
	for _, e := range exceptions() {
		if !needed[e] {
			t.Errorf("nothing needs the exception %+v any more; remove it", e)
		}
	}
}

// payload is one value that the bot sends, and the type that it has to have.
type payload struct {
	from, typ string
	value     any // as encoding/json reads it, with json.Number
}

// TestPayloadsFitSlacksTypes plays the adapter against the local Slack, and lets
// the TypeScript compiler compare everything that it sent with the types that
// Slack publishes: a check of the payloads that shares no code with the bot, the
// Go SDK or the local Slack.
func TestPayloadsFitSlacksTypes(t *testing.T) {
	needstest.Long(t)
	if testing.Short() {
		t.Skip("installs packages: not in -short")
	}
	dir := typesOfSlack(t)
	payloads := sentPayloads(t)
	payloads = append(payloads, goldenPayloads(t)...)
	excuse(t, payloads)
	wrong := brokenPayloads(t, payloads)

	good, goodLines := typescript(payloads)
	bad, badLines := typescript(wrong)
	for name, text := range map[string]string{"payloads.ts": good, "wrong.ts": bad} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	complaints := runTSC(t, dir)

	t.Run("what the bot sends fits", func(t *testing.T) {
		lines := strings.Split(good, "\n")
		for _, c := range complaints["payloads.ts"] {
			p := payloads[payloadAt(goodLines, c.line)]
			t.Errorf("%s is no %s at %s\n%s", p.from, p.typ, strings.TrimSpace(lines[c.line-1]), c.text)
		}
	})
	t.Run("what does not fit is found", func(t *testing.T) {
		found := map[int]bool{}
		for _, c := range complaints["wrong.ts"] {
			found[payloadAt(badLines, c.line)] = true
		}
		for i, p := range wrong {
			if !found[i] {
				t.Errorf("the types take this, so the check sees nothing there: %s as %s", p.from, p.typ)
			}
		}
	})
}

// typesOfSlack installs Slack's types and the compiler into a directory of the
// test, so that nothing of them is left in the tree.
func typesOfSlack(t *testing.T) string {
	t.Helper()
	return npmtest.Workspace(t, filepath.Join("testdata", "types"), "check the payloads against Slack's types")
}

// complaint is one error of the compiler.
type complaint struct {
	line int // from 1
	text string
}

// tscPlace begins an error of tsc with --pretty false; its explanation follows in
// indented lines.
var tscPlace = regexp.MustCompile(`^(payloads|wrong)\.ts\((\d+),\d+\): (error TS\d+: .*)$`)

// runTSC runs tsc over the directory and returns its complaints by file. An
// error anywhere else means that the types themselves did not load, and nothing
// was checked.
func runTSC(t *testing.T, dir string) map[string][]complaint {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	tsc := exec.CommandContext(ctx, "node", filepath.Join("node_modules", "typescript", "bin", "tsc"), "--project", ".", "--pretty", "false")
	tsc.Dir = dir
	out, err := tsc.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("tsc did not run: %v", err)
	}
	found := map[string][]complaint{}
	last := ""
	for line := range strings.Lines(string(out)) {
		line = strings.TrimRight(line, "\r\n")
		switch m := tscPlace.FindStringSubmatch(line); {
		case m != nil:
			n, err := strconv.Atoi(m[2])
			if err != nil {
				t.Fatal(err)
			}
			last = m[1] + ".ts"
			found[last] = append(found[last], complaint{n, m[3]})
		case last != "" && strings.HasPrefix(line, " "):
			list := found[last]
			list[len(list)-1].text += "\n" + line
		case line != "":
			t.Fatalf("tsc says something that is not about the payloads: %s", out)
		}
	}
	if err != nil && len(found) == 0 {
		t.Fatalf("tsc failed without a word about the payloads: %v\n%s", err, out)
	}
	return found
}

// typescript writes payloads as TypeScript, and returns the line on which each
// begins. Every value stands as a literal in a typed declaration: only there
// does the compiler refuse properties that the type does not have.
func typescript(payloads []payload) (text string, begins []int) {
	names := slices.Sorted(maps.Values(argumentTypes()))
	var b strings.Builder
	b.WriteString("import type { KnownBlock, ModalView } from '@slack/types';\n")
	b.WriteString("import type { " + strings.Join(names, ", ") + " } from '@slack/web-api';\n" + respondType)
	for i, p := range payloads {
		begins = append(begins, strings.Count(b.String(), "\n")+1)
		fmt.Fprintf(&b, "// %s\nexport const p%d: %s = %s;\n", strings.ReplaceAll(p.from, "\n", " "), i, p.typ, jsLiteral(p.value))
	}
	return b.String(), begins
}

// payloadAt is the index of the payload that a line belongs to.
func payloadAt(begins []int, line int) int {
	i, exact := slices.BinarySearch(begins, line)
	if !exact {
		i--
	}
	return max(i, 0)
}

// jsLiteral is a value as a JavaScript expression, one property a line. JSON is
// one (ECMA-262, "JSON superset").
func jsLiteral(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(v); err != nil {
		return "undefined" // fits no type
	}
	return strings.TrimSpace(b.String())
}

func parseJSON(t *testing.T, data []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("not JSON: %v: %s", err, data)
	}
	return v
}

// callArguments are a call's, as values. A JSON body is taken as it is. A form has
// strings only: there, what the method documents as JSON, as a truth value or
// as a number is read as that, and whatever can't be read stays a string, which
// the compiler refuses.
func callArguments(t *testing.T, c slackfake.Call) map[string]any {
	t.Helper()
	if len(c.Body) > 0 {
		args, ok := parseJSON(t, c.Body).(map[string]any)
		if !ok {
			t.Fatalf("the body of %s is no object: %s", c.Method, c.Body)
		}
		delete(args, "token")
		return args
	}
	args := map[string]any{}
	for name, values := range c.Args {
		if len(values) != 1 {
			t.Errorf("%s has the argument %s %d times", c.Method, name, len(values))
		}
		s := values[0]
		args[name] = s
		switch name {
		case "blocks", "attachments", "view", "metadata", "files", "chunks", "prompts", "loading_messages", "file_ids":
			args[name] = parseJSON(t, []byte(s))
		case "mrkdwn", "link_names", "unfurl_links", "unfurl_media", "as_user", "reply_broadcast", "return_im", "prevent_creation":
			if v, err := strconv.ParseBool(s); err == nil {
				args[name] = v
			}
		case "length":
			if _, err := strconv.Atoi(s); err == nil {
				args[name] = json.Number(s)
			}
		}
	}
	return args
}

// sentPayloads is what the bot sends in a workspace with everything, and in one without
// streams and status lines.
func sentPayloads(t *testing.T) []payload {
	t.Helper()
	var out []payload
	types, count := argumentTypes(), map[string]int{}
	have := map[string]bool{}
	add := func(p payload) {
		key := p.typ + jsLiteral(p.value)
		if have[key] {
			return
		}
		have[key] = true
		out = append(out, p)
	}
	// Blocks are compared once more by themselves: the arguments' types let any
	// object with a type pass as a block.
	blocks := func(from string, args map[string]any) {
		if b, ok := args["blocks"]; ok {
			add(payload{"the blocks of " + from, "KnownBlock[]", b})
		}
		if v, ok := args["view"].(map[string]any); ok {
			add(payload{"the blocks of the view of " + from, "KnownBlock[]", v["blocks"]})
		}
	}
	for _, s := range []*slackfake.Server{playEverything(t), playPlainly(t), playLiveCheck(t)} {
		for _, c := range s.Calls() {
			count[c.Method]++
			typ, writes := types[c.Method]
			if !writes {
				if !slices.Contains(readingMethods, c.Method) {
					t.Errorf("the bot called %s, whose type is not named here; add it", c.Method)
				}
				continue
			}
			from := fmt.Sprintf("%s no. %d", c.Method, count[c.Method])
			args := callArguments(t, c)
			add(payload{from, typ, args})
			blocks(from, args)
		}
		for i, r := range s.ResponsePosts() {
			count["response_url"]++
			args, ok := parseJSON(t, r.Body).(map[string]any)
			if !ok {
				t.Fatalf("a post to a response_url is no object: %s", r.Body)
			}
			from := fmt.Sprintf("response_url no. %d", i+1)
			add(payload{from, "Respond", args})
			blocks(from, args)
		}
	}
	for _, method := range append(slices.Sorted(maps.Keys(types)), "response_url") {
		if count[method] == 0 {
			t.Errorf("the scenes never came to %s, so it was not checked", method)
		}
	}
	return out
}

// goldenPayloads are the golden files of the package blockkit.
func goldenPayloads(t *testing.T) []payload {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("blockkit", "testdata", "*.json"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("the golden files of blockkit are not there: %v", err)
	}
	var out []payload
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		v := parseJSON(t, data)
		from := filepath.Base(path)
		list, _ := v.([]any)
		switch {
		case strings.HasPrefix(from, "home"):
			out = append(out, payload{from, "KnownBlock[]", v})
			continue
		case strings.HasPrefix(from, "modal"):
			view, _ := v.(map[string]any)
			out = append(out, payload{from, "ModalView", v}, payload{"the blocks of " + from, "KnownBlock[]", view["blocks"]})
			continue
		case list == nil:
			list = []any{v}
		}
		for i, m := range list {
			message, _ := m.(map[string]any)
			b, ok := message["Blocks"]
			if !ok {
				t.Fatalf("%s is of a kind that this test does not know", from)
			}
			if b == nil {
				continue
			}
			out = append(out, payload{fmt.Sprintf("%s, message %d", from, i+1), "KnownBlock[]", b})
		}
	}
	return out
}

// brokenPayloads are payloads that the types must refuse: in each, one object of each
// kind that the bot sends has a property that does not exist, and then some of
// the mistakes that a Block Kit payload can have.
func brokenPayloads(t *testing.T, payloads []payload) []payload {
	t.Helper()
	var out []payload
	done := map[string]bool{}
	for _, p := range payloads {
		for _, where := range typedObjects(p.typ, p.value, false) {
			if done[where.kind] {
				continue
			}
			done[where.kind] = true
			where.object["not_a_property"] = true
			out = append(out, payload{"a property too many in " + where.kind, p.typ, parseJSON(t, []byte(jsLiteral(p.value)))})
			delete(where.object, "not_a_property")
		}
	}
	for _, tc := range []struct{ rule, typ, value string }{
		{"an unknown block", "KnownBlock[]", `[{"type":"headline"}]`},
		{"a header without its text", "KnownBlock[]", `[{"type":"header"}]`},
		{"a header in mrkdwn", "KnownBlock[]", `[{"type":"header","text":{"type":"mrkdwn","text":"x"}}]`},
		{"an unknown colour of a button", "KnownBlock[]", `[{"type":"actions","elements":[{"type":"button","text":{"type":"plain_text","text":"x"},"style":"default"}]}]`},
		{"a string for a truth value", "ChatPostMessageArguments", `{"channel":"C1","text":"x","mrkdwn":"false"}`},
		{"an unknown way to parse", "ChatPostMessageArguments", `{"channel":"C1","text":"x","parse":"client"}`},
		{"a message without a channel", "ChatPostMessageArguments", `{"text":"x"}`},
		{"a message without contents", "ChatPostMessageArguments", `{"channel":"C1"}`},
		{"a message with its blocks as a string", "ChatPostMessageArguments", `{"channel":"C1","text":"x","blocks":"[]"}`},
		{"a list inside of a list", "KnownBlock[]", `[{"type":"rich_text","elements":[{"type":"rich_text_list","style":"bullet","elements":[{"type":"rich_text_list","style":"bullet","elements":[]}]}]}]`},
		{"code with an emoji", "KnownBlock[]", `[{"type":"rich_text","elements":[{"type":"rich_text_preformatted","elements":[{"type":"emoji","name":"smile"}]}]}]`},
		{"a modal without a title", "ModalView", `{"type":"modal","blocks":[]}`},
		{"a form without its trigger", "ViewsOpenArguments", `{"view":{"type":"home","blocks":[]}}`},
		{"an upload of no files", "FilesCompleteUploadExternalArguments", `{"channel_id":"C1","files":[]}`},
		{"a size in words", "FilesGetUploadURLExternalArguments", `{"filename":"x","length":"12"}`},
		{"a stream outside of threads", "ChatStartStreamArguments", `{"channel":"C1","markdown_text":"x"}`},
		{"an answer to nobody known", "Respond", `{"text":"x","response_type":"everybody"}`},
	} {
		out = append(out, payload{tc.rule, tc.typ, parseJSON(t, []byte(tc.value))})
	}
	return out
}

// typedObject is an object inside of a payload; its kind is the way to it, with the
// type of each object on the way.
type typedObject struct {
	kind   string
	object map[string]any
}

// typedObjects lists the objects of a payload. Unless all are wanted it leaves
// out the blocks in arguments, which are payloads of their own, and a message's
// event_payload, in which any property is allowed.
func typedObjects(kind string, v any, all bool) []typedObject {
	switch v := v.(type) {
	case map[string]any:
		if typ, ok := v["type"].(string); ok {
			kind += "(" + typ + ")"
		}
		out := []typedObject{{kind, v}}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if !all && (name == "event_payload" || name == "blocks") {
				continue
			}
			out = append(out, typedObjects(kind+"."+name, v[name], all)...)
		}
		return out
	case []any:
		var out []typedObject
		for _, e := range v {
			out = append(out, typedObjects(kind+"[]", e, all)...)
		}
		return out
	}
	return nil
}

// busyDesk is a bot with something of everything going on.
type busyDesk struct{ thread chat.ThreadID }

func (d busyDesk) Run(context.Context, chat.Inquiry, string) (chat.ThreadID, string, error) {
	return d.thread, "", nil
}

func (d busyDesk) Overview(context.Context, chat.Inquiry) (chat.Overview, error) {
	at := time.Now().Add(10 * time.Minute)
	return chat.Overview{
		Busy: []chat.Busy{{Thread: d.thread, Doing: "running `uptime` <!here>"}},
		Approvals: []chat.Waiting{
			{Thread: d.thread, ID: "abc", Title: "systemctl restart app", Level: "high", Target: "web-1", Expires: at, Mine: true},
			{Thread: d.thread, ID: "def", Title: "reboot", Level: "critical", Target: "db-1", Expires: at},
		},
		Sessions: []chat.Session{
			{Thread: d.thread, Name: "countersign-1", State: "idle", Attach: "tmux attach -t countersign-1"},
			{Thread: d.thread, Name: "countersign-2", State: "running"},
		},
	}, nil
}

func (d busyDesk) Stop(context.Context, chat.Inquiry) ([]chat.ThreadID, error) {
	return []chat.ThreadID{d.thread}, nil
}

// waitingCard is a card that waits for a decision.
func waitingCard(id string, tone chat.Tone) chat.Card {
	code := "systemctl restart app\necho \"<!channel> `done`\""
	return chat.Card{
		Title: "Approve run_shell? " + strings.ToUpper(string(tone)), Tone: tone, Code: code, Body: "Two lines\nof *body*.",
		Warn: []string{"The model says risk low; the engine says HIGH: restarts a service."},
		Fields: []chat.Field{
			{Name: "Target", Value: "root@web-1"}, {Name: "Model's reason", Value: "<@UALICE> *trust* me :smile: \u202e"},
			{Name: "Expires", Value: "03:19:05 UTC"}, {Name: "Request", Value: id + ", digest 1a2b-3c4d"},
		},
		Choose: []chat.Button{
			{ID: chat.ButtonID("deny:" + id), Label: "Deny", Style: chat.StyleDeny, AskReason: true},
			{ID: chat.ButtonID("approve:" + id), Label: "Approve", Style: chat.StyleApprove, Confirm: "This is HIGH. Run exactly this on web-1?"},
			{ID: chat.ButtonID("edit:" + id), Label: "Edit", Style: chat.StyleEdit, Edit: code},
			{ID: chat.ButtonID("stop:" + id), Label: "Stop", Style: chat.StyleStop},
		},
		Digest: "1a2b-3c4d",
	}
}

// decidedCard is the same card after the decision.
func decidedCard(id string, tone chat.Tone) chat.Card {
	c := waitingCard(id, tone)
	c.Final, c.Title, c.Body = true, "Done: run_shell", "Approved by bob at 03:05:05 UTC. It ran: exit code 0."
	return c
}

// allMarkdown is Markdown of all kinds.
func allMarkdown(t *testing.T) []string {
	t.Helper()
	tour, err := os.ReadFile(filepath.Join("..", "chat", "markdown", "testdata", "tour.md"))
	if err != nil {
		t.Fatal(err)
	}
	return []string{
		string(tour),
		"Plain words, **bold**, _italic_, ~~struck~~, `code` and **_both_ `at once`**.",
		"# Heading\n\n## Second\n\n---\n\nafter a rule",
		"|a|b|c|\n|:-|:-:|-:|\n|**x**|`y`|[z](https://example.org/z)|\n||e|&|\n",
		"|a|\n|-|\n|1|\n\nand\n\n|b|\n|-|\n|2|\n",
		"```go\nfunc main() {}\n```\n\n    indented\n",
		"- a\n  - b\n    1. c\n    2. d\n      - e\n- f\n\n  more of f\n\n  ```\n  code of f\n  ```\n\n3. three\n4. four\n\n- [ ] open\n- [x] done",
		"> quoted **bold**\n>\n> > deeper\n>\n> - list\n>\n> ```\n> code\n> ```",
		"[text](https://example.org/a?b=c&d=e) <https://example.org> https://example.org/x mailto:a@example.org [bad](javascript:1) ![image](https://example.org/p.png)",
		"<!channel> <@UALICE> @here :smile: <b>html</b> &amp; \u202ereverse ⚠️",
		">",
		"   ",
		strings.Repeat("A sentence of some length that goes on a bit. ", 500),
		"# Log\n\n" + strings.Repeat("- a line of a very long list\n", 3000),
	}
}

// playEverything is a workspace that has streams and status lines, after the bot
// did in it whatever it can do.
func playEverything(t *testing.T) *slackfake.Server {
	t.Helper()
	var d busyDesk
	s := play(t, slackfake.Config{Streaming: true, AssistantStatus: true, AckTimeout: 3 * time.Second}, func(c *slack.Config) { c.Desk = &d })
	th := s.begun()
	d.thread = th

	for i, text := range allMarkdown(t) {
		s.post(th, chat.Post{Key: fmt.Sprint("reply/", i), Text: text})
	}
	r := s.post(th, chat.Post{Key: "files", Text: "With files:", Files: []chat.File{{Name: "a.txt", Text: "one"}, {Name: "b.log"}, {Text: "no name"}}})
	s.edit(th, r, chat.Post{Key: "files", Text: "Edited: **two** messages now. " + strings.Repeat("More of it. ", 1500)})
	s.edit(th, r, chat.Post{Key: "files", Text: "And one again."})

	tones := []chat.Tone{chat.ToneNeutral, chat.ToneLow, chat.ToneMedium, chat.ToneHigh, chat.ToneGood, chat.ToneBad}
	for i, tone := range tones {
		id := fmt.Sprint("tone", i)
		c := waitingCard(id, tone)
		r := s.post(th, chat.Post{Key: "card/" + id, Card: &c})
		c = decidedCard(id, tone)
		s.edit(th, r, chat.Post{Key: "card/" + id, Card: &c})
	}
	for _, id := range []string{"long", "unattached"} {
		c := waitingCard(id, chat.ToneHigh)
		c.Code = "#!/bin/sh\n" + strings.Repeat("echo one more line of a long script\n", 600) + "rm -rf /srv/data"
		c.Body = strings.Repeat("A long explanation of it all. ", 300)
		c.Attach = []chat.File{{Name: "context.txt", Text: "context"}}
		if id == "unattached" {
			s.server.FailNext("files.getUploadURLExternal", 1, slackfake.Answer{Error: "access_denied"})
		}
		s.post(th, chat.Post{Key: "card/" + id, Card: &c})
	}
	bare := chat.Card{Title: "Stopped", Final: true}
	s.post(th, chat.Post{Key: "card/bare", Card: &bare, Quiet: true})

	playLog(s, th)
	playStream(s, th)
	playRefusals(s, th)
	playClicks(s, th)
	playCommands(s)

	if err := s.server.OpenHome(t.Context(), "UALICE"); err != nil {
		t.Fatal(err)
	}
	s.until("the home page is there", func() bool { return s.accepted("views.publish") > 0 })
	if _, _, err := s.server.AssistantThread(t.Context(), "UALICE"); err != nil {
		t.Fatal(err)
	}
	s.until("first questions are offered", func() bool { return s.accepted("assistant.threads.setSuggestedPrompts") > 0 })
	s.end()
	return s.server
}

// playLog plays a turn's runs.
func playLog(s *scene, th chat.ThreadID) {
	s.t.Helper()
	s.post(th, chat.Post{Key: "call/1", Text: "`uptime` on web-1: exit code 0", Quiet: true, Log: true})
	s.post(th, chat.Post{Key: "call/2", Text: "`df -h` on web-1: exit code 0\n```\n/ 99%\n```", Quiet: true, Log: true})
	n := s.accepted("chat.update")
	s.ShowProgress(s.t.Context(), th, chat.Progress{Key: "call/3", Kind: chat.ProgressOutput, Status: "running tail -f <log>", Text: "a line\nanother ```line```\n"})
	s.until("the output of a running command is shown", func() bool { return s.accepted("chat.update") > n })
	s.post(th, chat.Post{Key: "call/3", Text: "`tail` was stopped", Quiet: true, Log: true})
}

// playStream plays a reply that is written while people read it.
func playStream(s *scene, th chat.ThreadID) {
	s.t.Helper()
	text := "Looking at <web-1> & [its](https://example.org) disks"
	for _, step := range []struct{ method, text string }{
		{"chat.startStream", text}, {"chat.appendStream", text + ", **one** moment"}, {"chat.stopStream", "It changed its mind"},
	} {
		n := s.accepted(step.method)
		s.ShowProgress(s.t.Context(), th, chat.Progress{Key: "reply/stream", Status: "thinking", Text: step.text})
		s.until(step.method, func() bool { return s.accepted(step.method) > n })
	}
	s.post(th, chat.Post{Key: "reply/stream", Text: "The disk is **full**."})
	n := s.accepted("assistant.threads.setStatus")
	s.ShowProgress(s.t.Context(), th, chat.Progress{Key: "status", Kind: chat.ProgressStatus, Done: true})
	s.until("the status goes away", func() bool { return s.accepted("assistant.threads.setStatus") > n })
}

// playRefusals plays what the bot does when Slack takes a form of a message only
// plainly, or not at all.
func playRefusals(s *scene, th chat.ThreadID) {
	s.t.Helper()
	table := "|a|b|\n|-|-|\n|c|d|\n"
	s.server.FailNext("chat.postMessage", 1, slackfake.Answer{Error: "invalid_blocks"})
	r := s.post(th, chat.Post{Key: "plain", Text: table})
	s.server.FailNext("chat.update", 1, slackfake.Answer{Error: "invalid_blocks"})
	s.edit(th, r, chat.Post{Key: "plain", Text: table + "|e|f|\n"})
	s.server.FailNext("chat.postMessage", 2, slackfake.Answer{Error: "invalid_blocks"})
	s.post(th, chat.Post{Key: "file", Text: table})
}

// playClicks plays presses and their answers.
func playClicks(s *scene, th chat.ThreadID) {
	s.t.Helper()
	channel, _ := split(th)
	press := func(id, button, reason string) {
		s.t.Helper()
		c := waitingCard(id, chat.ToneMedium)
		s.post(th, chat.Post{Key: "card/" + id, Card: &c})
		ours := s.ours(th)
		card := ours[len(ours)-1]
		act, ok := action(card, chat.ButtonID(button+":"+id))
		if !ok {
			s.t.Fatalf("the card %s has no button %s", id, button)
		}
		if _, err := s.server.PressWith(s.t.Context(), "UALICE", channel, card.TS, act, map[string]string{"cs.text": reason}); err != nil {
			s.t.Fatalf("the press of %s: %v", button, err)
		}
	}
	told := func(what string, n int) {
		s.t.Helper()
		s.until(what, func() bool { return len(s.server.Ephemerals(channel, "UALICE")) > n })
	}

	n := len(s.server.Ephemerals(channel, "UALICE"))
	s.bot.onClick(func(chat.Click) (chat.Answer, error) {
		return chat.Answer{Notice: "You may <not> approve *this*."}, nil
	})
	press("refused", "approve", "")
	told("a refusal is said", n)

	n = s.accepted("chat.update")
	c := decidedCard("approved", chat.ToneGood)
	s.bot.onClick(func(chat.Click) (chat.Answer, error) {
		return chat.Answer{Card: &c, OK: true, Notice: "Approved."}, nil
	})
	press("approved", "deny", "not <now>")
	s.until("the card has its new face", func() bool { return s.accepted("chat.update") > n })

	press("edited", "edit", "")
	s.until("the form is open", func() bool { return len(s.server.Views("UALICE")) > 0 })

	// Somebody who can't be told in the channel is told in a direct message.
	n = s.accepted("conversations.open")
	s.server.FailNext("chat.postEphemeral", 1, slackfake.Answer{Error: "user_not_in_channel"})
	s.bot.onClick(func(chat.Click) (chat.Answer, error) { return chat.Answer{}, errors.New("down") })
	press("failed", "approve", "")
	s.until("a direct message is written", func() bool {
		return s.accepted("conversations.open") > n && slices.ContainsFunc(s.server.Messages(s.server.DM("UALICE"), ""), func(m slackfake.Msg) bool { return m.BotID != "" })
	})
	s.bot.onClick(nil)
}

// playCommands plays the slash command with each of its words.
func playCommands(s *scene) {
	s.t.Helper()
	for i, word := range []string{"help", "status", "approvals", "sessions", "stop", "what <is> this"} {
		if err := s.server.Command(s.t.Context(), "UALICE", "C1", slack.SlashCommand, word); err != nil {
			s.t.Fatalf("%s: %v", word, err)
		}
		s.until("an answer to "+word, func() bool { return len(s.server.ResponsePosts()) > i })
	}
	// A response_url that does not work: the answer is an ephemeral message.
	n := s.accepted("chat.postEphemeral")
	s.server.FailNext("response_url", 1, slackfake.Answer{Status: http.StatusInternalServerError})
	if err := s.server.Command(s.t.Context(), "UALICE", "C1", slack.SlashCommand, "status"); err != nil {
		s.t.Fatal(err)
	}
	s.until("an answer without the response_url", func() bool { return s.accepted("chat.postEphemeral") > n })
}

// playPlainly is a workspace without streams and status lines, in which drafts and
// status are messages that are edited.
func playPlainly(t *testing.T) *slackfake.Server {
	t.Helper()
	s := play(t, slackfake.Config{AckTimeout: 3 * time.Second})
	th := s.begun()
	s.ShowProgress(t.Context(), th, chat.Progress{Key: "status", Kind: chat.ProgressStatus, Status: "thinking <hard>"})
	s.until("a status is written", func() bool { return s.accepted("chat.postMessage") > 0 })
	s.ShowProgress(t.Context(), th, chat.Progress{Key: "call/1", Kind: chat.ProgressOutput, Status: "running uptime", Text: "up 3 days\n"})
	s.until("a running command is shown", func() bool { return s.accepted("chat.update") > 0 })
	s.post(th, chat.Post{Key: "call/1", Text: "`uptime`: exit code 0", Log: true, Quiet: true})
	n := s.accepted("chat.postMessage")
	s.ShowProgress(t.Context(), th, chat.Progress{Key: "reply/1", Text: "It is\n\n- up"})
	s.until("a draft is written", func() bool { return s.accepted("chat.postMessage") > n })
	s.post(th, chat.Post{Key: "reply/1", Text: "It is\n\n- up\n- well"})
	s.end()
	return s.server
}

// playLiveCheck is a workspace after the live check of the bot's installation.
func playLiveCheck(t *testing.T) *slackfake.Server {
	t.Helper()
	s := workspace(t, slackfake.Config{})
	o := slack.Live(t.Context(), slack.DoctorConfig{BotToken: "xoxb-1", AppToken: "xapp-1", APIURL: s.URL()}, slack.LiveOptions{
		Channel: "C1", Wait: 50 * time.Millisecond, Say: func(string) {},
	})
	if s.Count("chat.postMessage") != 1 || s.Count("chat.update") != 1 {
		t.Errorf("the live check posted no card: %+v", o)
	}
	return s
}
