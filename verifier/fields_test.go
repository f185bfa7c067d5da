package verifier

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"countersign/adapters/chat"
	"countersign/approvals"
)

// TestEachMemberOfARequestIsKnown: what the bot writes is on the list of what an archive may have.
func TestEachMemberOfARequestIsKnown(t *testing.T) {
	for at, shape := range map[string]reflect.Type{
		"": reflect.TypeFor[approvals.Record](), "action": reflect.TypeFor[approvals.Action](), "votes": reflect.TypeFor[approvals.Vote](), "votes.user": reflect.TypeFor[chat.User](),
		"require": reflect.TypeFor[approvals.Require](), "require.needs": reflect.TypeFor[approvals.Need](), "basis": reflect.TypeFor[approvals.Basis](),
		"place": reflect.TypeFor[approvals.Place](), "outcome": reflect.TypeFor[approvals.Outcome](),
	} {
		for f := range shape.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if left := at == "" && name == "nonce" || at == "action" && name == "bytes"; name != "-" && !left && !slices.Contains(strings.Fields(fields[at]), name) {
				t.Errorf("%s.%s is in a request, and the verifier refuses it", at, name)
			}
		}
	}
}
