package observe

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"countersign/approvals"
)

func TestLabelsOfTheModelAgainstTheEngine(t *testing.T) {
	engine := func(risk string, readOnly bool, effects ...string) approvals.Judgement {
		return approvals.Judgement{Risk: risk, ReadOnly: readOnly, Effects: effects}
	}
	tests := []struct {
		rule   string
		claim  approvals.Claim
		engine approvals.Judgement
		want   string
	}{
		{"low and no change is what a proven read is", approvals.Claim{Risk: "low"}, engine("read", true), modelSame},
		{"no risk at all is low", approvals.Claim{}, engine("read", true), modelSame},
		{"low with a change is what low is", approvals.Claim{Risk: "low", Mutation: true}, engine("low", false), modelSame},
		{"a change that is not excluded and not named is lower", approvals.Claim{Risk: "low"}, engine("low", false), modelLower},
		{"low for high is lower", approvals.Claim{Risk: "low", Mutation: true}, engine("high", false), modelLower},
		{"medium for high is lower", approvals.Claim{Risk: "medium", Mutation: true}, engine("high", false), modelLower},
		{"high for medium is higher", approvals.Claim{Risk: "high", Mutation: true}, engine("medium", false), modelHigher},
		{"the model has no word for critical", approvals.Claim{Risk: "high", Mutation: true}, engine("critical", false), modelSame},
		{"what the engine does not know is high", approvals.Claim{Risk: "medium", Mutation: true}, engine("unknown", false), modelLower},
		{"a level that does not exist is not known", approvals.Claim{Risk: "high", Mutation: true}, engine("?", false), modelSame},
		{"a word that the model made up is high", approvals.Claim{Risk: "dire", Mutation: true}, engine("high", false), modelSame},
		{"a change where there is none is higher", approvals.Claim{Risk: "low", Mutation: true}, engine("read", true), modelHigher},
		{"privileges that are not named are lower", approvals.Claim{Risk: "high", Mutation: true}, engine("high", false, "privesc"), modelLower},
		{"privileges that are not there are higher", approvals.Claim{Risk: "high", Mutation: true, Privesc: true}, engine("high", false), modelHigher},
		{"lower counts before higher", approvals.Claim{Risk: "high"}, engine("low", false), modelLower},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			o, _ := observer(t, Config{})
			tt.claim.Given = true
			o.Labels(tt.claim, tt.engine)
			for _, d := range []string{modelLower, modelHigher, modelSame} {
				want := 0.0
				if d == tt.want {
					want = 1
				}
				if got := sample(t, o, "countersign_label_mismatch_total", "direction="+d); got != want {
					t.Errorf("%s is %v, want %v", d, got, want)
				}
			}
		})
	}
	t.Run("an action without labels does not count", func(t *testing.T) {
		o, _ := observer(t, Config{})
		o.Labels(approvals.Claim{Risk: "low"}, engine("high", false))
		if got := sample(t, o, "countersign_label_mismatch_total", "direction=model_lower"); got != 0 {
			t.Errorf("it counts %v", got)
		}
	})
}

func TestWhatIsReadAtAScrape(t *testing.T) {
	depth, fault := 7, error(nil)
	o, _ := observer(t, Config{
		Version: "1.2.3", Revision: "abc",
		Adapters: func() map[string]error { return map[string]error{"slack": nil, "discord": errors.New("not connected")} },
		OnCall: func() map[string]time.Duration {
			return map[string]time.Duration{"oncall(pagerduty P123, level 1)": 20 * time.Second}
		},
		Lag: func(context.Context) (map[string]time.Duration, error) {
			return map[string]time.Duration{"otlp collector:4318": 3 * time.Second}, nil
		},
		Queue: func(ctx context.Context) (int, error) {
			if _, ok := ctx.Deadline(); !ok {
				t.Error("the queue is counted without a limit")
			}
			return depth, fault
		},
	})
	for _, tt := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"countersign_adapter_connected", []string{"adapter=slack"}, 1},
		{"countersign_adapter_connected", []string{"adapter=discord"}, 0},
		{"countersign_queue_depth", nil, 7},
		{"countersign_delivery_lag_seconds", []string{"receiver=otlp collector:4318"}, 3},
		{"countersign_oncall_age_seconds", []string{"schedule=oncall(pagerduty P123, level 1)"}, 20},
		{"countersign_build_info", []string{"version=1.2.3", "revision=abc", "goversion=" + runtime.Version()}, 1},
	} {
		if got := sample(t, o, tt.name, tt.labels...); got != tt.want {
			t.Errorf("%s%v is %v, want %v", tt.name, tt.labels, got, tt.want)
		}
	}
	if got := sample(t, o, "go_goroutines"); got < 1 {
		t.Errorf("go_goroutines is %v", got)
	}
	fault = errors.New("the store is closed")
	reg := prometheus.NewRegistry()
	if err := o.Register(reg); err != nil {
		t.Fatal(err)
	}
	if _, err := reg.Gather(); err == nil {
		t.Error("a queue that cannot be counted is told as a number")
	}
	if err := o.Register(reg); err == nil {
		t.Error("the same metrics are registered twice")
	}
}

func TestToolsAreABoundedLabel(t *testing.T) {
	b := &bounded{known: func(s string) bool { return s != "made up" }, seen: map[string]bool{}}
	if b.label("made up") != "unknown" || (&bounded{}).label("x") != "unknown" || b.label("run_shell") != "run_shell" {
		t.Error("a label is a name that is registered, or unknown")
	}
	values := map[string]bool{}
	for i := range 3 * maxTools {
		values[b.label(fmt.Sprint("tool-of-a-server-", i))] = true
	}
	if len(values) > maxTools+1 {
		t.Errorf("there are %d values", len(values))
	}
	if b.label("run_shell") != "run_shell" {
		t.Error("a tool lost its name")
	}
}
