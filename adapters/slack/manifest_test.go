package slack

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	slackapi "github.com/slack-go/slack"
)

var writeManifests = flag.Bool("manifests", false, "write testdata/manifest-*.yaml anew")

// manifestCases are the ways to install the app; each has a golden file.
var manifestCases = map[string]ManifestOptions{
	"socket":         {},
	"mention-only":   {MentionOnly: true},
	"http":           {HTTP: "https://bot.example.com/", Name: "Ops & Friends"},
	"assistant-view": {AssistantView: true},
}

func manifestSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	s, err := jsonschema.NewCompiler().Compile("testdata/manifest.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// readManifest validates a manifest and reads it as slack-go does.
func readManifest(schema *jsonschema.Schema, text []byte) (slackapi.Manifest, error) {
	var m slackapi.Manifest
	var doc any
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return m, err
	}
	if err := schema.Validate(doc); err != nil {
		return m, err
	}
	return m, yaml.Unmarshal(text, &m)
}

func TestManifestIsWhatSlackAccepts(t *testing.T) {
	schema := manifestSchema(t)
	for name, o := range manifestCases {
		t.Run(name, func(t *testing.T) {
			text, err := Manifest(o)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", "manifest-"+name+".yaml")
			if *writeManifests {
				if err := os.WriteFile(path, text, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want, err := os.ReadFile(path); err != nil || string(want) != string(text) {
				t.Errorf("%s differs (%v); look at it and write it with -manifests:\n%s", path, err, text)
			}
			m, err := readManifest(schema, text)
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			http := o.HTTP != ""
			if m.Settings.SocketModeEnabled == http {
				t.Error("Socket Mode and request addresses exclude each other")
			}
			for what, u := range map[string]string{
				"/slack/events": m.Settings.EventSubscriptions.RequestUrl, "/slack/interactivity": m.Settings.Interactivity.RequestUrl,
				"/slack/commands": m.Features.SlashCommands[0].Url,
			} {
				if want := map[bool]string{true: "https://bot.example.com" + what}[http]; u != want {
					t.Errorf("%s is %q, want %q", what, u, want)
				}
			}
			listens := slices.Contains(m.OAuthConfig.Scopes.Bot, "channels:history") || slices.Contains(m.OAuthConfig.Scopes.Bot, "groups:history") ||
				slices.Contains(m.Settings.EventSubscriptions.BotEvents, "message.channels") || slices.Contains(m.Settings.EventSubscriptions.BotEvents, "message.groups")
			if listens == o.MentionOnly {
				t.Errorf("with MentionOnly %t the bot listens to channels: %t", o.MentionOnly, listens)
			}
			if !m.Features.AppHome.MessagesTabEnabled || m.Features.AppHome.MessagesTabReadOnlyEnabled {
				t.Error("people cannot write to the bot in its messages tab")
			}
			granted := m.OAuthConfig.Scopes.Bot
			for _, e := range slices.Concat(Events(), agentEvents, assistantEvents) {
				if slices.Contains(m.Settings.EventSubscriptions.BotEvents, e.Name) && e.Scope != "" && !slices.Contains(granted, e.Scope) {
					t.Errorf("%s is asked for without its scope %s", e.Name, e.Scope)
				}
			}
			if (m.Features.AssistantView != nil) != slices.Contains(m.Settings.EventSubscriptions.BotEvents, "assistant_thread_started") {
				t.Error("Slack refuses the assistant view without assistant_thread_started")
			}
		})
	}
}

func TestEveryScopeAndEventHasItsReason(t *testing.T) {
	text, err := Manifest(ManifestOptions{})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, s := range Scopes() {
		if s.Reason == "" || seen[s.Name] {
			t.Errorf("%s has no reason, or is there twice", s.Name)
		}
		seen[s.Name] = true
		prefix := "\n      - "
		if s.Need == Optional {
			prefix = "\n      # - "
		}
		if !strings.Contains(string(text), prefix+s.Name+" # ") {
			t.Errorf("%s stands in the manifest without its reason", s.Name)
		}
	}
	for _, e := range Events() {
		if !strings.Contains(string(text), "\n      - "+e.Name+" # "+e.Reason) {
			t.Errorf("%s stands in the manifest without its reason", e.Name)
		}
		if e.Scope != "" && !seen[e.Scope] {
			t.Errorf("%s needs %s, which is no scope of ours", e.Name, e.Scope)
		}
	}
	for _, must := range []string{"connections:write", "SLACK_APP_TOKEN", "/invite @countersign", "countersign doctor --live"} {
		if !strings.Contains(string(text), must) {
			t.Errorf("the steps do not say %s", must)
		}
	}
}

func TestManifestRefusesWhatSlackWould(t *testing.T) {
	for _, tc := range []struct {
		rule string
		o    ManifestOptions
		want string
	}{
		{"a name that is too long", ManifestOptions{Name: strings.Repeat("é", 36)}, "at most 35"},
		{"a name of spaces", ManifestOptions{Name: "  "}, "at most 35"},
		{"a name with a line break", ManifestOptions{Name: "a\nb: c"}, "printable"},
		{"plain http", ManifestOptions{HTTP: "http://bot.example.com"}, "https://"},
		{"no scheme", ManifestOptions{HTTP: "bot.example.com"}, "https://"},
		{"a query", ManifestOptions{HTTP: "https://bot.example.com/?a=b"}, "https://"},
		{"a password", ManifestOptions{HTTP: "https://u:p@bot.example.com/"}, "https://"},
		{"an endless address", ManifestOptions{HTTP: "https://bot.example.com/" + strings.Repeat("a", 3000)}, "too long"},
	} {
		if _, err := Manifest(tc.o); err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", tc.rule, err)
		}
	}
	if _, err := Manifest(ManifestOptions{Name: strings.Repeat("é", 35)}); err != nil {
		t.Errorf("35 characters are allowed: %v", err)
	}
}

func TestAnyNameGivesAValidManifest(t *testing.T) {
	schema := manifestSchema(t)
	rapid.Check(t, func(t *rapid.T) {
		o := ManifestOptions{
			Name: rapid.String().Draw(t, "name"), MentionOnly: rapid.Bool().Draw(t, "mention"), AssistantView: rapid.Bool().Draw(t, "assistant"),
			HTTP: rapid.SampledFrom([]string{"", "https://a.example", "https://b.example:8443/x/"}).Draw(t, "http"),
		}
		text, err := Manifest(o)
		if err != nil {
			return
		}
		m, err := readManifest(schema, text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if want := o.Name; want != "" && m.Display.Name != want {
			t.Fatalf("the name %q became %q", want, m.Display.Name)
		}
	})
}

func ExampleManifest() {
	text, _ := Manifest(ManifestOptions{MentionOnly: true, Name: "Night Watch"})
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "display_name") || strings.Contains(line, "/invite") {
			fmt.Print(line)
		}
	}
	// Output:
	// # 4. In each channel: /invite @night-watch
	//     display_name: "night-watch"
}
