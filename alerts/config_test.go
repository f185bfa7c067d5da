package alerts_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"countersign/alerts"
	"countersign/alerts/notice"
)

const example = `
hooks:
  alertmanager: {secret_env: ALERTMANAGER_HOOK_SECRET}
  pagerduty: {secret_env: PAGERDUTY_HOOK_SECRET}
routes:
  - match: {severity: critical, team: db}
    channel: slack:T1:C123
    target: db-1
    triage: true
  - match: {source: pagerduty, service: "~api-.*|web"}
    channel: discord:1:2
    triage: false
default: {channel: web}
repeat: 4h
silent: 48h
new_threads: 5
`

func parsed(t *testing.T, text string) alerts.Config {
	t.Helper()
	var c alerts.Config
	dec := yaml.NewDecoder(strings.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&c); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTheExampleIsAConfiguration(t *testing.T) {
	c := parsed(t, example)
	if err := c.Check(func(name string) bool { return name == "db-1" }); err != nil {
		t.Error(err)
	}
	if c.Repeat != 4*time.Hour || c.Silent != 48*time.Hour || c.NewThreads != 5 || c.Routes[0].Target != "db-1" || *c.Routes[1].Triage {
		t.Errorf("it is %+v", c)
	}
	if err := (alerts.Config{}).Check(nil); err != nil {
		t.Errorf("no configuration: %v", err)
	}
}

// docs/alerts.md shows a configuration that works.
func TestTheConfigurationInTheDocumentationIsOne(t *testing.T) {
	doc, err := os.ReadFile("../docs/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(doc), "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	var file struct{ Alerts alerts.Config }
	dec := yaml.NewDecoder(strings.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&file); err != nil {
		t.Fatal(err)
	}
	if err := file.Alerts.Check(nil); err != nil || len(file.Alerts.Hooks) != 4 || len(file.Alerts.Routes) != 2 {
		t.Errorf("it is %+v, %v", file.Alerts, err)
	}
}

func TestNoticesGoWhereTheFirstRouteSays(t *testing.T) {
	for _, c := range []struct {
		rule   string
		labels map[string]string
		source notice.Source
		want   string
	}{
		{"all labels fit", map[string]string{"severity": "critical", "team": "db", "x": "y"}, notice.Generic, "slack:T1:C1"},
		{"one label does not fit", map[string]string{"severity": "critical", "team": "web"}, notice.Generic, "slack:T1:C4"},
		{"one label is missing", map[string]string{"severity": "critical"}, notice.Generic, "slack:T1:C4"},
		{"the source and an expression fit", map[string]string{"service": "api-1"}, notice.PagerDuty, "slack:T1:C2"},
		{"another part of the expression fits", map[string]string{"service": "web"}, notice.PagerDuty, "slack:T1:C2"},
		{"an expression fits as a whole only", map[string]string{"service": "my-web"}, notice.PagerDuty, "slack:T1:C4"},
		{"another source", map[string]string{"service": "web"}, notice.Grafana, "slack:T1:C4"},
		{"a label named source does not stand for it", map[string]string{"service": "web", "source": "pagerduty"}, notice.Grafana, "slack:T1:C4"},
		{"a label that must be missing", map[string]string{"severity": "info"}, notice.Generic, "slack:T1:C3"},
		{"and is not", map[string]string{"severity": "info", "team": "x"}, notice.Generic, "slack:T1:C4"},
		{"no labels", nil, notice.Generic, "slack:T1:C4"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			cfg := alerts.Config{
				Routes: []alerts.Route{
					{Match: map[string]string{"severity": "critical", "team": "db"}, Place: alerts.Place{Channel: "slack:T1:C1"}},
					{Match: map[string]string{"source": "pagerduty", "service": "~api-.*|web"}, Place: alerts.Place{Channel: "slack:T1:C2"}},
					{Match: map[string]string{"severity": "info", "team": ""}, Place: alerts.Place{Channel: "slack:T1:C3"}},
				},
				Default: &alerts.Place{Channel: "slack:T1:C4"},
			}
			bubble(t, cfg, func(h *house) {
				h.accept(notice.Notice{Source: c.source, Key: "a", Status: notice.Firing, Title: "a", Labels: c.labels})
				settle(time.Second)
				if th := h.thread(); !strings.HasPrefix(string(th), c.want+":") {
					t.Errorf("it went to %q", th)
				}
			})
		})
	}
}

func TestEachMistakeIsASentence(t *testing.T) {
	for _, c := range []struct{ rule, text, want string }{
		{"an unknown hook", "{hooks: {zabbix: {secret_env: A}}, default: {channel: web}}", `no hook "zabbix"`},
		{"a hook without a secret", "{hooks: {grafana: {}}, default: {channel: web}}", "alerts.hooks.grafana.secret_env is missing"},
		{"hooks without a default", "{hooks: {grafana: {secret_env: A}}}", "alerts.default is missing"},
		{"a route that takes everything", "{routes: [{channel: web}]}", "alerts.routes[0].match is empty"},
		{"a route without a channel", "{routes: [{match: {a: b}}]}", "alerts.routes[0].channel is missing"},
		{"a channel without its team", "{routes: [{match: {a: b}, channel: 'slack:C1'}]}", `"slack:C1" is no channel`},
		{"a thread is no channel", "{default: {channel: 'slack:T1:C1:1.2'}}", "alerts.default.channel"},
		{"a broken expression", "{routes: [{match: {a: '~('}, channel: web}]}", "alerts.routes[0].match.a"},
		{"an unknown target", "{routes: [{match: {a: b}, channel: web, target: nowhere}]}", `no target "nowhere"`},
		{"an unknown target of the default", "{default: {channel: web, target: nowhere}}", `no target "nowhere"`},
		{"a time that is too short", "{repeat: 1s}", "alerts.repeat is 1s"},
		{"a time before now", "{silent: -1h}", "alerts.silent is -1h"},
		{"too many threads", "{new_threads: 1000}", "alerts.new_threads is 1000"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			err := parsed(t, c.text).Check(func(string) bool { return false })
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v", err)
			}
		})
	}
	if _, err := alerts.New(alerts.Options{}); err == nil {
		t.Error("an intake was made of nothing")
	}
}

func TestSecretsComeFromTheEnvironmentOrNotAtAll(t *testing.T) {
	c := parsed(t, example)
	env := map[string]string{"ALERTMANAGER_HOOK_SECRET": "correct-horse-battery-staple", "PAGERDUTY_HOOK_SECRET": "another-long-secret"}
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	got, err := c.Secrets(lookup)
	if err != nil || len(got) != 2 || got[notice.Alertmanager].Reveal() != "correct-horse-battery-staple" {
		t.Errorf("the secrets are %v, %v", got, err)
	}
	for _, bad := range []string{"", "too-short"} {
		env["PAGERDUTY_HOOK_SECRET"] = bad
		got, err := c.Secrets(lookup)
		if err == nil || !strings.Contains(err.Error(), "PAGERDUTY_HOOK_SECRET") || bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v", bad, err)
		}
		if _, ok := got[notice.PagerDuty]; ok {
			t.Error("the hook is open")
		}
	}
}
