package console

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"countersign/approvals/audit"
	"countersign/approvals/policy"
	"countersign/config"
	"countersign/config/rules"
	"countersign/console"
	"countersign/store"
	"countersign/store/mem"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bot.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWhoMayDoWhatInTheConsole(t *testing.T) {
	f := config.Defaults()
	f.Groups = map[string]policy.Group{
		"oncall":    {People: policy.IDs{"web": {"alice"}}, Groups: policy.IDs{"web": {"sre"}}},
		"everybody": {People: policy.IDs{"web": {"vera", "alice"}}, Groups: policy.IDs{"web": {"engineering"}}},
		"chat":      {People: policy.IDs{"slack": {"U1"}}},
	}
	f.Web.Viewers = []string{"everybody"}
	r, err := rules.New(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		rule   string
		name   string
		groups []string
		want   console.Role
	}{
		{"somebody in a group is a member", "alice", nil, console.Member},
		{"somebody in a group of viewers only looks", "vera", nil, console.Viewer},
		{"somebody in no group stays outside", "eve", nil, console.None},
		{"a group of the identity provider counts", "eve@example.com", []string{"sre"}, console.Member},
		{"so does one of viewers", "eve@example.com", []string{"engineering"}, console.Viewer},
		{"the other group wins", "eve@example.com", []string{"engineering", "sre"}, console.Member},
		{"a name is no group", "sre", nil, console.None},
		{"a group is no name", "eve", []string{"alice"}, console.None},
		{"an id of another network is nothing", "U1", []string{"U1"}, console.None},
		{"nobody has no name", "", nil, console.None},
	} {
		if got := Role(r, tc.name, tc.groups); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.rule, got, tc.want)
		}
	}
}

func TestNamesOfTheConfigurationAreCompared(t *testing.T) {
	f, err := config.ReadFile(write(t, "groups: {oncall: {web: [\"bob \", \"jose\u0301\", bob]}}"))
	if err != nil {
		t.Fatal(err)
	}
	if got := f.Groups["oncall"].People["web"]; !slices.Equal(got, []string{"bob", "jos\u00e9"}) {
		t.Fatalf("the names are %q", got)
	}
	r, err := rules.New(f)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]console.Role{"bob": console.Member, "jos\u00e9": console.Member, "bob ": console.None} {
		if got := Role(r, name, nil); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}

func TestSignInsAreLinesOfTheAuditRecord(t *testing.T) {
	db := mem.Open()
	at := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	err := db.Update(t.Context(), func(tx store.Tx) error {
		x := console.Access{What: console.SignedIn, Name: "alice", How: "oidc", Address: "192.0.2.7", Agent: "Browser/1", Note: "first", At: at}
		audit.Append(tx, doorThread, doorEvent(x), x.At)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	_ = db.View(t.Context(), func(tx store.Tx) error {
		lines := audit.Lines(tx, doorThread)
		if len(lines) != 1 || lines[0].Event.What != "signed in" || lines[0].Event.User != "web:alice" || lines[0].Event.Via != "oidc" ||
			lines[0].Event.Note != "from 192.0.2.7; first; Browser/1" {
			t.Errorf("the lines are %+v", lines)
		}
		return nil
	})
}

func TestStrangersLeaveRoomForTheRest(t *testing.T) {
	for files, want := range map[uint64][2]int{0: {8, 8}, 64: {16, 8}, 1024: {256, 64}, 1 << 20: {512, 128}, 1<<64 - 1: {512, 128}} {
		if all, each := strangers(files); all != want[0] || each != want[1] {
			t.Errorf("%d files: %d, %d", files, all, each)
		}
	}
}

// What signs people in must not cross a network in clear unless somebody said so.
func TestAClearTextConsoleIsForThisMachineOnly(t *testing.T) {
	for listen, ok := range map[string]bool{
		"127.0.0.1:8700": true, "[::1]:8700": true, "localhost:8700": true, "nowhere": true, // which is refused when it is listened on
		"0.0.0.0:8700": false, ":8700": false, "[::]:8700": false, "10.0.0.1:8700": false, "bot.internal:8700": false,
	} {
		if err := CheckClearText(listen, config.WebConfig{}); (err == nil) != ok {
			t.Errorf("%s: %v", listen, err)
		}
		if err := CheckClearText(listen, config.WebConfig{Origin: "http://bot.example.com"}); (err == nil) != ok {
			t.Errorf("%s with an http origin: %v", listen, err)
		}
		var own config.WebConfig
		own.TLS.Cert = "cert.pem"
		if err := CheckClearText(listen, own); err != nil {
			t.Errorf("%s with TLS: %v", listen, err)
		}
		if err := CheckClearText(listen, config.WebConfig{Origin: "https://bot.example.com"}); err != nil {
			t.Errorf("%s behind a proxy with TLS: %v", listen, err)
		}
	}
}
