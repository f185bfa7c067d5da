package chat_test

import (
	"slices"
	"testing"

	"countersign/adapters/chat"
)

func TestOnlyThePlansStepsAreListed(t *testing.T) {
	for text, want := range map[string][]string{
		"1. Touch a\n    touch a\n2. Delete b\n    rm b\n    \n    2. x\n": {"1. Touch a\n    touch a\n", "2. Delete b\n    rm b\n    \n    2. x\n"},
		"1. Touch a\n    touch a":              nil,
		"1. Touch a\ntouch a\n2. b\n    x":     nil,
		"1. Touch a\n    touch a\n3. b\n    x": nil,
		"systemctl restart nginx\n":            nil,
		"":                                     nil,
	} {
		if got := chat.Steps(text); !slices.Equal(got, want) {
			t.Errorf("%q: %q", text, got)
		}
	}
}
