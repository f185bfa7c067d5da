package discordfake

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// asked is a stage with a bot that is logged in, and a card with buttons.
func asked(t *testing.T, c Config) (*stage, *app, string) {
	t.Helper()
	p := play(t, c)
	a := p.login(nil)
	return p, a, p.good(p.post(p.ch, card)).str("id")
}

func answer(kind int, data any) any { return object{"type": kind, "data": data} }

func TestAPressCarriesWhoPressedWhat(t *testing.T) {
	p, a, m := asked(t, Config{})
	role := p.AddRole(p.guild, Role{Name: "sre", Permissions: PermManageMessages})
	p.AddMember(p.guild, p.ann, role)
	p.SetOverwrites(p.ch, Overwrite{Role: role, Allow: PermManageThreads, Deny: PermAddReactions})
	seen := make(chan val, 1)
	p.bot(a, func(d val) any {
		seen <- d
		return answer(AnswerUpdate, object{"content": "Approved by ann", "components": []any{}})
	})
	r, err := p.Press(p.ctx, p.ann, p.ch, m, "yes")
	if err != nil || r.Type != AnswerUpdate || r.Message.Content != "Approved by ann" || len(r.Message.Buttons()) != 0 {
		t.Fatalf("the person sees %+v, %v", r, err)
	}
	d := <-seen
	want := permText((PermEveryone | PermManageMessages | PermManageThreads) &^ PermAddReactions)
	if d.str("data.custom_id") != "yes" || d.int("data.component_type") != 2 || d.str("member.user.id") != p.ann || d.str("member.roles.0") != role ||
		d.str("member.permissions") != want || d.str("guild_id") != p.guild || d.str("channel_id") != p.ch || d.str("channel.id") != p.ch ||
		d.str("message.id") != m || d.str("message.content") != "Approve?" || d.at("user").v != nil || d.int("type") != 3 || d.int("version") != 1 {
		t.Errorf("the interaction is %v", d.v)
	}
	if s := p.Shown(p.ch); len(s) != 1 || s[0].Content != "Approved by ann" {
		t.Errorf("people see %+v", s)
	}
}

func TestInADirectMessageThereIsNoMember(t *testing.T) {
	p := play(t, Config{})
	a := p.login(nil)
	dm := p.DM(p.ann)
	m := p.good(p.post(dm, card)).str("id")
	p.bot(a, func(d val) any {
		if d.str("user.id") != p.ann || d.at("member").v != nil || d.at("guild_id").v != nil || d.str("authorizing_integration_owners.0") != "0" {
			t.Errorf("the interaction is %v", d.v)
		}
		return answer(AnswerDeferredUpdate, nil)
	})
	if _, err := p.Press(p.ctx, p.ann, dm, m, "yes"); err != nil {
		t.Error(err)
	}
}

func TestWhatAPersonSeesOfEachAnswer(t *testing.T) {
	for _, c := range []struct {
		rule string
		body any
		want func(Response) bool
	}{
		{"a message", answer(AnswerMessage, object{"content": "noted"}), func(r Response) bool { return r.Message.Content == "noted" && !r.Ephemeral() }},
		{"an ephemeral message", answer(AnswerMessage, object{"content": "no", "flags": FlagEphemeral}), func(r Response) bool { return r.Message.Content == "no" && r.Ephemeral() }},
		{"a bot that thinks", answer(AnswerDeferred, nil), func(r Response) bool { return r.Message.Has(FlagLoading) && !r.Ephemeral() }},
		{"a bot that thinks in private", answer(AnswerDeferred, object{"flags": FlagEphemeral | FlagSuppressEmbeds}), func(r Response) bool {
			return r.Message.Flags == FlagLoading|FlagEphemeral
		}},
		{"nothing yet", answer(AnswerDeferredUpdate, nil), func(r Response) bool { return r.Message.Content == "Approve?" }},
		{"the changed message", answer(AnswerUpdate, object{"content": "done"}), func(r Response) bool { return r.Message.Content == "done" && r.Message.Edited }},
	} {
		t.Run(c.rule, func(t *testing.T) {
			p, a, m := asked(t, Config{})
			p.bot(a, func(val) any { return c.body })
			r, err := p.Press(p.ctx, p.ann, p.ch, m, "no")
			if err != nil || !c.want(r) {
				t.Errorf("the person sees %+v, %v", r.Message, err)
			}
			if r.Ephemeral() && (len(p.Shown(p.ch)) != 1 || len(p.ShownTo(p.ch, p.ann)) != 2 || len(p.ShownTo(p.ch, p.ben)) != 1) {
				t.Error("what is ephemeral is seen by others")
			}
		})
	}
}

func TestAnswersThatDoNotFit(t *testing.T) {
	p, a, m := asked(t, Config{AckTimeout: 10 * time.Second})
	p.good(p.do("PUT", "/applications/"+p.AppID()+"/commands", `[{"name":"go","description":"d"}]`))
	x := strings.Repeat
	for _, c := range []struct {
		rule string
		body any
		code int
	}{
		{"a pong", object{"type": AnswerPong}, 50035},
		{"choices for a button", answer(AnswerChoices, object{"choices": []any{}}), 50035},
		{"a type that does not exist", object{"type": 99}, 50035},
		{"no type", object{}, 50035},
		{"a message without data", object{"type": AnswerMessage}, 50035},
		{"an empty message", answer(AnswerMessage, object{"content": ""}), 50006},
		{"2001 characters", answer(AnswerUpdate, object{"content": x("x", 2001)}), 50035},
		{"nothing left of the card", answer(AnswerUpdate, object{"content": "", "components": []any{}}), 50006},
		{"a modal without inputs", answer(AnswerModal, object{"custom_id": "m", "title": "t", "components": []any{}}), 50035},
		{"a modal with a title of 46", answer(AnswerModal, modal(x("t", 46), 1)), 50035},
		{"a modal with six inputs", answer(AnswerModal, modal("t", 6)), 50035},
		{"a modal with a button", answer(AnswerModal, object{"custom_id": "m", "title": "t", "components": []any{object{"type": 1, "components": []any{object{"type": 2, "style": 1, "label": "l", "custom_id": "a"}}}}}), 50035},
	} {
		done := make(chan error, 1)
		go func() {
			_, err := p.Press(p.ctx, p.ann, p.ch, m, "yes")
			done <- err
		}()
		d := a.want("INTERACTION_CREATE")
		path := "/v10/interactions/" + d.str("id") + "/" + d.str("token") + "/callback"
		if r := p.as("", "POST", path, c.body); r.status != 400 || r.code() != c.code {
			t.Errorf("%s: %d %s", c.rule, r.status, r.raw)
		}
		// A refused answer is none, so a good one can follow.
		p.good(p.as("", "POST", path, answer(AnswerDeferredUpdate, nil)))
		if err := <-done; err != nil {
			t.Errorf("%s: %v", c.rule, err)
		}
	}
	go func() { _, _ = p.Slash(p.ctx, p.ann, p.ch, "go", nil) }()
	d := a.want("INTERACTION_CREATE")
	path := "/v10/interactions/" + d.str("id") + "/" + d.str("token") + "/callback"
	p.bad(p.as("", "POST", path, answer(AnswerUpdate, object{"content": "x"})), 400, 50035)
	p.good(p.as("", "POST", path, answer(AnswerMessage, object{"content": "x"})))
}

func modal(title string, inputs int) object {
	rows := []any{}
	for i := range inputs {
		id := string(rune('a' + i))
		rows = append(rows, object{"type": 1, "components": []any{object{
			"type": 4, "custom_id": id, "label": "Why", "style": 2, "max_length": 20, "min_length": 2, "value": "as is",
		}}})
	}
	return object{"custom_id": "m", "title": title, "components": rows}
}

func TestOneAnswerInTime(t *testing.T) {
	p, a, m := asked(t, Config{AckTimeout: 150 * time.Millisecond})
	if _, err := p.Press(p.ctx, p.ann, p.ch, m, "yes"); !errors.Is(err, ErrNotAnswered) {
		t.Errorf("without an answer: %v", err)
	}
	d := a.want("INTERACTION_CREATE")
	path := "/v10/interactions/" + d.str("id") + "/" + d.str("token") + "/callback"
	p.bad(p.as("", "POST", path, answer(AnswerDeferredUpdate, nil)), 404, 10062)
	p.bad(p.as("", "POST", "/v10/interactions/1/x/callback", answer(AnswerDeferredUpdate, nil)), 404, 10062)
	p.bad(p.as("", "PATCH", "/v10/webhooks/"+p.AppID()+"/"+d.str("token")+"/messages/@original", `{"content":"x"}`), 404, 10015)
	if all := p.Interactions(); len(all) != 1 || !all[0].Late || all[0].Answered {
		t.Errorf("interactions are %+v", all)
	}

	p, a, m = asked(t, Config{})
	done := make(chan error, 1)
	go func() {
		_, err := p.Press(p.ctx, p.ann, p.ch, m, "yes")
		done <- err
	}()
	d = a.want("INTERACTION_CREATE")
	path = "/v10/interactions/" + d.str("id") + "/" + d.str("token") + "/callback"
	r := p.good(p.as("", "POST", path+"?with_response=true", answer(AnswerUpdate, object{"content": "first"})))
	if r.str("resource.message.content") != "first" || r.str("interaction.id") != d.str("id") {
		t.Errorf("the answer's answer is %v", r.v)
	}
	p.bad(p.as("", "POST", path, answer(AnswerUpdate, object{"content": "second"})), 400, 40060)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if s := p.Shown(p.ch); s[0].Content != "first" {
		t.Errorf("people see %+v", s)
	}
}

func TestTheWebhookOfAnInteraction(t *testing.T) {
	p, a, m := asked(t, Config{})
	var token string
	p.bot(a, func(d val) any {
		token = d.str("token")
		return answer(AnswerMessage, object{"content": "working", "flags": FlagEphemeral})
	})
	if _, err := p.Press(p.ctx, p.ann, p.ch, m, "yes"); err != nil {
		t.Fatal(err)
	}
	hook := "/v10/webhooks/" + p.AppID() + "/" + token
	if r := p.good(p.as("", "GET", hook+"/messages/@original", nil)); r.str("content") != "working" || r.str("interaction_metadata.user.id") != p.ann {
		t.Errorf("the original is %v", r.v)
	}
	p.good(p.as("", "PATCH", hook+"/messages/@original", `{"content":"done"}`))
	f := p.good(p.as("", "POST", hook+"?wait=true", `{"content":"also","flags":64}`)).str("id")
	p.good(p.as("", "PATCH", hook+"/messages/"+f, `{"content":"also this"}`))
	if s := p.ShownTo(p.ch, p.ann); len(s) != 3 || s[1].Content != "done" || s[2].Content != "also this" || s[2].Ephemeral != p.ann {
		t.Errorf("the person sees %+v", s)
	}
	// What is ephemeral is not reached with the bot's token.
	p.bad(p.do("PATCH", "/channels/"+p.ch+"/messages/"+f, `{"content":"x"}`), 404, 10008)
	p.good(p.as("", "DELETE", hook+"/messages/"+f, nil))
	p.good(p.as("", "DELETE", hook+"/messages/@original", nil))
	p.bad(p.as("", "GET", hook+"/messages/@original", nil), 404, 10008)
	p.bad(p.as("", "POST", "/v10/webhooks/1/"+token, `{"content":"x"}`), 404, 10015)
	p.Advance(DefaultTokenLife + time.Second)
	p.bad(p.as("", "POST", hook, `{"content":"x"}`), 401, 50027)
}

func TestADeferredAnswerIsFilledIn(t *testing.T) {
	for _, c := range []struct {
		rule, method, path string
	}{
		{"by an edit", "PATCH", "/messages/@original"},
		{"by a follow-up, for old clients", "POST", ""},
	} {
		t.Run(c.rule, func(t *testing.T) {
			p, a, m := asked(t, Config{})
			var token string
			p.bot(a, func(d val) any { token = d.str("token"); return answer(AnswerDeferred, nil) })
			r, err := p.Press(p.ctx, p.ann, p.ch, m, "yes")
			if err != nil {
				t.Fatal(err)
			}
			p.good(p.as("", c.method, "/v10/webhooks/"+p.AppID()+"/"+token+c.path, `{"content":"done"}`))
			if s := p.Shown(p.ch); len(s) != 2 || s[1].ID != r.Message.ID || s[1].Content != "done" || s[1].Has(FlagLoading) {
				t.Errorf("people see %+v", s)
			}
		})
	}
}

func TestAModalGoesThereAndBack(t *testing.T) {
	for _, labels := range []bool{false, true} {
		p, a, m := asked(t, Config{})
		p.bot(a, func(d val) any {
			if d.int("type") == 3 {
				if !labels {
					return answer(AnswerModal, modal("Why?", 1))
				}
				return answer(AnswerModal, object{"custom_id": "m", "title": "Why?", "components": []any{object{
					"type": 18, "label": "Why", "component": object{"type": 4, "custom_id": "a", "style": 1, "max_length": 20, "min_length": 2, "value": "as is"},
				}}})
			}
			at := "data.components.0.components.0.value"
			if labels {
				at = "data.components.0.component.value"
			}
			if d.str("data.custom_id") != "m" || d.str("message.id") != m {
				t.Errorf("the submission is %v", d.v)
			}
			return answer(AnswerUpdate, object{"content": d.str(at)})
		})
		r, err := p.Press(p.ctx, p.ann, p.ch, m, "no")
		if err != nil || r.Modal == nil || r.Modal.Title != "Why?" || r.Modal.Inputs[0].Value != "as is" || !r.Modal.Inputs[0].Required {
			t.Fatalf("the form is %+v, %v", r.Modal, err)
		}
		for rule, v := range map[string]string{"too short": "x", "too long": strings.Repeat("x", 21), "required": ""} {
			if _, err := p.SubmitModal(p.ctx, r.Modal, map[string]string{"a": v}); !errors.Is(err, ErrForbidden) {
				t.Errorf("%s: %v", rule, err)
			}
		}
		if _, err := p.SubmitModal(p.ctx, r.Modal, map[string]string{"zz": "v"}); !errors.Is(err, ErrForbidden) {
			t.Errorf("an input that is not there: %v", err)
		}
		done, err := p.SubmitModal(p.ctx, r.Modal, map[string]string{"a": "too risky"})
		if err != nil || done.Message.Content != "too risky" {
			t.Errorf("after the form: %+v, %v", done.Message, err)
		}
	}
}

func TestWhatAPersonCannotPress(t *testing.T) {
	p, _, m := asked(t, Config{})
	th := must2(t)(p.StartThread(p.ann, p.ch, "", "t"))
	stranger := p.AddUser(User{})
	for _, c := range []struct{ rule, user, channel, message, id string }{
		{"a disabled button", p.ann, p.ch, m, "off"},
		{"a button that is not there", p.ann, p.ch, m, "maybe"},
		{"a message of another channel", p.ann, th, m, "yes"},
		{"a channel that the person does not see", stranger, p.ch, m, "yes"},
	} {
		if _, err := p.Press(p.ctx, c.user, c.channel, c.message, c.id); !errors.Is(err, ErrForbidden) {
			t.Errorf("%s: %v", c.rule, err)
		}
	}
	if len(p.Interactions()) != 0 {
		t.Error("the app heard of it")
	}
}

func TestMenus(t *testing.T) {
	p := play(t, Config{})
	a := p.login(nil)
	m := p.good(p.post(p.ch, row(`{"type":3,"custom_id":"m","min_values":1,"max_values":2,"options":[{"label":"A","value":"a"},{"label":"B","value":"b"}]}`))).str("id")
	p.bot(a, func(d val) any {
		return answer(AnswerMessage, object{"content": d.str("data.values.0") + d.str("data.values.1")})
	})
	r, err := p.Select(p.ctx, p.ann, p.ch, m, "m", "b", "a")
	if err != nil || r.Message.Content != "ba" {
		t.Errorf("%+v, %v", r.Message, err)
	}
	for _, bad := range [][]string{{}, {"z"}, {"a", "b", "a"}} {
		if _, err := p.Select(p.ctx, p.ann, p.ch, m, "m", bad...); !errors.Is(err, ErrForbidden) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

func TestSlashCommands(t *testing.T) {
	p := play(t, Config{})
	a := p.login(nil)
	p.good(p.do("PUT", "/applications/"+p.AppID()+"/guilds/"+p.guild+"/commands", `[{"name":"ops","description":"d","options":[
		{"type":1,"name":"ask","description":"d","options":[{"type":3,"name":"text","description":"d","required":true,"max_length":10},{"type":4,"name":"n","description":"d"},{"type":6,"name":"who","description":"d"}]},
		{"type":1,"name":"stop","description":"d"}]},
		{"name":"find","description":"d","options":[{"type":3,"name":"q","description":"d","autocomplete":true}]}]`))
	p.bot(a, func(d val) any {
		switch {
		case d.int("type") == 4:
			return answer(AnswerChoices, object{"choices": []any{object{"name": "one", "value": d.str("data.options.0.value") + "1"}}})
		case d.str("data.options.0.name") == "stop":
			return answer(AnswerMessage, object{"content": "stopped", "flags": FlagEphemeral})
		}
		if d.str("data.options.0.options.1.name") != "who" || d.str("data.resolved.users."+p.ben+".username") != "ben" {
			t.Errorf("the command is %v", d.v)
		}
		return answer(AnswerMessage, object{"content": "asked " + d.str("data.options.0.options.0.value")})
	})
	r, err := p.Slash(p.ctx, p.ann, p.ch, "ops ask", map[string]any{"text": "disk?", "who": p.ben})
	if err != nil || r.Message.Content != "asked disk?" || r.Message.Type != MessageCommand {
		t.Errorf("%+v, %v", r.Message, err)
	}
	if r, err := p.Slash(p.ctx, p.ann, p.ch, "ops stop", nil); err != nil || !r.Ephemeral() {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := p.Complete(p.ctx, p.ann, p.ch, "find", "q", "x"); err != nil || len(r.Choices) != 1 || r.Choices[0].Value != "x1" {
		t.Errorf("%+v, %v", r, err)
	}
	for rule, do := range map[string]func() (Response, error){
		"an unknown command": func() (Response, error) { return p.Slash(p.ctx, p.ann, p.ch, "nope", nil) },
		"no subcommand":      func() (Response, error) { return p.Slash(p.ctx, p.ann, p.ch, "ops", nil) },
		"a missing option":   func() (Response, error) { return p.Slash(p.ctx, p.ann, p.ch, "ops ask", nil) },
		"an option too long": func() (Response, error) {
			return p.Slash(p.ctx, p.ann, p.ch, "ops ask", map[string]any{"text": "12345678901"})
		},
		"an option of another type": func() (Response, error) {
			return p.Slash(p.ctx, p.ann, p.ch, "ops ask", map[string]any{"text": "x", "n": "one"})
		},
		"an option that is not there": func() (Response, error) {
			return p.Slash(p.ctx, p.ann, p.ch, "ops ask", map[string]any{"text": "x", "zz": 1})
		},
		"a guild's command in a direct message": func() (Response, error) { return p.Slash(p.ctx, p.ann, p.DM(p.ann), "ops stop", nil) },
	} {
		if _, err := do(); !errors.Is(err, ErrForbidden) {
			t.Errorf("%s: %v", rule, err)
		}
	}
}

func TestWithAnEndpointTheGatewayGetsNoInteractions(t *testing.T) {
	p := play(t, Config{AckTimeout: 50 * time.Millisecond, InteractionsEndpoint: "https://example.com/x"})
	a := p.login(nil)
	m := p.good(p.post(p.ch, card)).str("id")
	if _, err := p.Press(p.ctx, p.ann, p.ch, m, "yes"); !errors.Is(err, ErrNotAnswered) {
		t.Errorf("the press gave %v", err)
	}
	for _, name := range a.quiet() {
		if name == "INTERACTION_CREATE" {
			t.Error("the gateway got it")
		}
	}
}

func TestAnArchivedThreadTakesNoUpdate(t *testing.T) {
	p := play(t, Config{})
	a := p.login(nil)
	th := must2(t)(p.StartThread(p.ann, p.ch, "", "t"))
	m := p.good(p.post(th, card)).str("id")
	p.Archive(th, true)
	codes := make(chan int, 1)
	go func() {
		_, _ = p.Press(p.ctx, p.ann, th, m, "yes")
	}()
	d := a.want("INTERACTION_CREATE")
	path := "/v10/interactions/" + d.str("id") + "/" + d.str("token") + "/callback"
	r := p.as("", "POST", path, answer(AnswerUpdate, object{"content": "x"}))
	codes <- r.code()
	if c := <-codes; c != 50083 {
		t.Errorf("the update answered %d %s", r.status, r.raw)
	}
	p.good(p.as("", "POST", path, answer(AnswerMessage, object{"content": "wakes"})))
	if _, st, _ := p.ThreadOf(th); st.Archived {
		t.Error("a message did not make the thread active")
	}
}
