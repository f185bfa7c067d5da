package threads

import (
	"log/slog"
	"testing"

	"countersign/adapters/chat"
	"countersign/agent"
	"countersign/agent/role"
	"countersign/approvals/policy"
	"countersign/bot/machines"
	"countersign/config"
	"countersign/config/rules"
	"countersign/store"
	"countersign/store/mem"
)

func targets(t *testing.T) Targets {
	t.Helper()
	f := config.Defaults()
	f.Targets = map[string]config.TargetConfig{"local": {Kind: "local"}, "db": {Kind: "local", Users: []string{"dba"}}, "web-1": {Kind: "local"}}
	f.Groups = map[string]policy.Group{"dba": {People: policy.IDs{"web": {"dora"}}}}
	f.Channels = []config.ChannelConfig{{Platform: "slack", ID: "C1", Target: "web-1"}, {Platform: "slack", ID: "C2", Target: "gone"}}
	r, err := rules.New(f)
	if err != nil {
		t.Fatal(err)
	}
	all, err := machines.NewSet(&machines.Options{File: f, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return Targets{DB: mem.Open(), Machines: all, Rules: func() *rules.Rules { return r }, Default: "local"}
}

func TestAThreadWorksOnWhatItChoseElseOnItsChannelsTarget(t *testing.T) {
	x := targets(t)
	if err := x.Choose(t.Context(), "slack:T:C1:chosen", "db", "slack:U1"); err != nil {
		t.Fatal(err)
	}
	if err := x.Choose(t.Context(), "web:gone", "nowhere", "web:alice"); err != nil {
		t.Fatal(err)
	}
	for thread, want := range map[string]string{
		"slack:T:C1:chosen": "db", "slack:T:C1:other": "web-1", "slack:T:C2:1": "local", "web:1": "local", "web:gone": "local",
	} {
		if got, err := x.Current(t.Context(), thread); err != nil || got != want {
			t.Errorf("%s works on %q, want %q (%v)", thread, got, want, err)
		}
	}
}

func TestACallReachesOnlyWhatItsPersonMayUse(t *testing.T) {
	x := targets(t)
	if why := x.MayUse("web:1", chat.User{ID: "web:dora"}, nil, "db"); why != "" {
		t.Errorf("one of its people: %s", why)
	}
	if why := x.MayUse("web:1", chat.User{ID: "web:eve"}, nil, "db"); why == "" {
		t.Error("somebody else may use it")
	}
}

func TestAThreadHasTheRoleThatItWasGivenElseItsChannels(t *testing.T) {
	set, err := role.New(role.Config{})
	if err != nil {
		t.Fatal(err)
	}
	db := mem.Open()
	r := Roles{DB: db, Set: set, Log: slog.New(slog.DiscardHandler), In: func(channel string) string {
		return map[string]string{"slack:C1": "oracle", "slack:C2": "gone"}[channel]
	}}
	if err := r.Give(t.Context(), "slack:T:C1:given", "seraph"); err != nil {
		t.Fatal(err)
	}
	if err := r.Give(t.Context(), "slack:T:C1:none", ""); err != nil {
		t.Fatal(err)
	}
	for thread, want := range map[chat.ThreadID]string{
		"slack:T:C1:given": "seraph", "slack:T:C1:none": "", "slack:T:C1:other": "oracle", "slack:T:C2:1": "", "web:1": "",
	} {
		if got := r.Of(thread).Name; got != want {
			t.Errorf("%s is %q, want %q", thread, got, want)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if got := r.Of("web:1").Name; got != "architect" {
		t.Errorf("without its store it is %q, and not the one that may least", got)
	}
	for _, id := range []string{agent.RunbookWriter, agent.RunbookReader} {
		if s, ok := r.SubAgent(id); !ok || !s.ReadOnly {
			t.Errorf("%s: %+v %v", id, s, ok)
		}
	}
}

func TestThreadsWithoutWorkAreNotActive(t *testing.T) {
	db := mem.Open()
	if err := db.Update(t.Context(), func(tx store.Tx) error { Choose(tx, "web:1", "local", "alerts"); return nil }); err != nil {
		t.Fatal(err)
	}
	if list, err := Active(t.Context(), db, ""); err != nil || len(list) != 0 {
		t.Errorf("%v %v", list, err)
	}
}
