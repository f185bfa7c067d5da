package config

import (
	"reflect"
	"testing"
)

func TestWhatLooksLikeAVariableOfTheBotIsNamed(t *testing.T) {
	f := File{MCP: map[string]MCPConfig{"x": {Env: []string{"COUNTERSIGN_MINE"}}}}
	f.Programs.Webhooks, f.Stream = []WebhookConfig{{SecretEnv: "COUNTERSIGN_HOOK"}}, []StreamConfig{{TokenEnv: "COUNTERSIGN_COLLECTOR"}}
	got := Strays(f, []string{
		"COUNTERSIGN_HOOK=x", "COUNTERSIGN_HOOK_FILE=/x", "COUNTERSIGN_COLLECTOR=x",
		"COUNTERSIGN_LISTEN=x", "COUNTERSIGN_STORE_FILE=/x", "COUNTERSIGN_MINE=1", "COUNTERSIGN_MINE_FILE=/x", "COUNTERSIGN_POD_NAME=bot-0",
		"COUNTERSIGN_SERVICE_HOST=10.0.0.1", "COUNTERSIGN_PORT_8700_TCP_ADDR=10.0.0.1", "COUNTERSIGN_PORT=tcp://10.0.0.1:8700", "PATH=/bin", "HOME",
		"COUNTERSIGN_LISTN=x", "COUNTERSIGN_DATADIR=/x", "COUNTERSIGN_SOMETHING=1",
	})
	want := []Stray{{"COUNTERSIGN_LISTN", "COUNTERSIGN_LISTEN"}, {"COUNTERSIGN_DATADIR", "COUNTERSIGN_DATA_DIR"}, {"COUNTERSIGN_SOMETHING", ""}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("strays %+v", got)
	}
}
