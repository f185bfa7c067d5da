package embed

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"countersign/adapters/chat"
)

// schemas are those of Discord's own description of its API.
func schemas(t *testing.T) func(name string) *jsonschema.Schema {
	t.Helper()
	const spec = "COUNTERSIGN_DISCORD_OPENAPI"
	path := os.Getenv(spec)
	if path == "" {
		t.Skip("set " + spec + " to Discord's openapi.json to check messages against it")
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	const at = "https://schema.test/discord.json"
	if err := c.AddResource(at, doc); err != nil {
		t.Fatal(err)
	}
	return func(name string) *jsonschema.Schema {
		s, err := c.Compile(at + "#/components/schemas/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

func valid(t *testing.T, s *jsonschema.Schema, v any) {
	t.Helper()
	if err := problem(s, v); err != nil {
		t.Error(err)
	}
}

func problem(s *jsonschema.Schema, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	return s.Validate(doc)
}

func TestEverythingIsValidForDiscord(t *testing.T) {
	schema := schemas(t)
	create, edit := schema("MessageCreateRequest"), schema("MessageEditRequestPartial")
	answer, form := schema("UpdateMessageInteractionCallbackRequest"), schema("ModalInteractionCallbackRequest")
	type reply struct {
		Type int `json:"type"`
		Data any `json:"data"`
	}
	all := map[string][]Message{
		"notice": {Notice("Done.")}, "progress": {Progress("# a\n\ntext")}, "nothing": Reply("", nil), "empty card": {Card(chat.Card{}, Options{Quiet: true})},
	}
	for name, c := range goldenCards(t) {
		all[name] = []Message{Card(c, Options{})}
		for _, b := range Buttons(c) {
			if f, err := Modal(b); !errors.Is(err, ErrTooLong) {
				valid(t, form, reply{9, f})
			}
		}
	}
	for name, s := range replySources(t) {
		all[name] = Reply(s, make([]chat.File, 23))
	}
	for name, ms := range all {
		t.Run(name, func(t *testing.T) {
			for _, m := range ms {
				valid(t, create, m)
				valid(t, edit, m)
				valid(t, answer, reply{7, m})
				// With what an adapter adds.
				valid(t, create, struct {
					Message
					Nonce   string `json:"nonce"`
					Enforce bool   `json:"enforce_nonce"`
				}{m, "0123456789012345678901234", true})
			}
		})
	}
}

func TestTheSchemaWouldNotice(t *testing.T) {
	schema := schemas(t)
	create := schema("MessageCreateRequest")
	bad := Card(pending(), Options{})
	bad.Components[0].Components[0].CustomID = strings.Repeat("x", MaxCustomID+1)
	if problem(create, bad) == nil {
		t.Error("a custom_id that is too long is valid")
	}
	bad = Card(pending(), Options{})
	bad.Embeds[0].Description = strings.Repeat("x", MaxDescription+1)
	if problem(create, bad) == nil {
		t.Error("a description that is too long is valid")
	}
}
