package config

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestThePageOfVariablesHasEachOne: docs/environment.md has every variable that the bot reads.
func TestThePageOfVariablesHasEachOne(t *testing.T) {
	raw, err := os.ReadFile("../docs/environment.md")
	if err != nil {
		t.Fatal(err)
	}
	names := slices.Concat(SecretNames, []string{"COUNTERSIGN_URL", "COUNTERSIGN_TOKEN", "COUNTERSIGN_ID_TOKEN", "COUNTERSIGN_POD_NAME"})
	for field := range reflect.TypeFor[Env]().Fields() {
		if name := field.Tag.Get("envconfig"); name != "-" {
			names = append(names, name)
		}
	}
	for _, name := range names {
		if !strings.Contains(string(raw), "`"+name+"`") {
			t.Errorf("%s isn't there", name)
		}
	}
}
