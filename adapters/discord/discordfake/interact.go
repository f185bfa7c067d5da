package discordfake

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Types of interactions and of answers to them (docs: "Receiving and Responding").
const (
	interCommand      = 2
	interComponent    = 3
	interAutocomplete = 4
	interModal        = 5

	AnswerPong           = 1
	AnswerMessage        = 4
	AnswerDeferred       = 5
	AnswerDeferredUpdate = 6
	AnswerUpdate         = 7
	AnswerChoices        = 8
	AnswerModal          = 9
)

// interaction is one thing that a person did to the app.
type interaction struct {
	id, token string
	kind      int
	user      string
	channel   *channel
	source    *message // the message of a component, also of a modal that came of one
	parent    *interaction
	name      string // custom_id or command, for messages of errors
	began     time.Time
	answered  bool
	dead      bool // the time for the first answer is over
	answer    Response
	original  *message
	deferred  bool // of type 5, and not edited yet
	follows   []*message
	done      chan struct{} // closed when answered
}

// Response is what a person gets to see of an interaction.
type Response struct {
	// Interaction is its id.
	Interaction string
	// Type is one of the Answer constants.
	Type int
	// Message is the new message (AnswerMessage, AnswerDeferred) or the changed one (AnswerUpdate), as it is at that moment.
	Message *Message
	// Modal is the form that opened.
	Modal *Modal
	// Choices are the suggestions of an autocompletion.
	Choices []Choice
}

// Ephemeral says that only the person sees the answer.
func (r Response) Ephemeral() bool { return r.Message != nil && r.Message.Ephemeral != "" }

// Choice is a suggestion.
type Choice struct {
	Name  string
	Value any
}

// Press lets a person press a button, or choose the entry of a menu that has this value, and returns what the app answered. It waits until then; the app has the three seconds. The
// error is ErrForbidden, ErrNotAnswered, ErrClosed or the context's.
func (s *Server) Press(ctx context.Context, user, channelID, messageID, customID string) (Response, error) {
	return s.component(ctx, user, channelID, messageID, customID, nil)
}

// Select lets a person choose values in a menu.
func (s *Server) Select(ctx context.Context, user, channelID, messageID, customID string, values ...string) (Response, error) {
	return s.component(ctx, user, channelID, messageID, customID, values)
}

// Chosen is what a person's client shows as chosen in a menu, and does not let them choose again; "" after each edit of the message.
func (s *Server) Chosen(user, channelID, messageID, customID string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.channels[channelID]; c != nil && c.live(messageID) != nil {
		return c.live(messageID).chosen[user+"/"+customID]
	}
	return ""
}

func (s *Server) component(ctx context.Context, user, channelID, messageID, customID string, values []string) (Response, error) {
	s.mu.Lock()
	in, err := s.newComponent(user, channelID, messageID, customID, values)
	s.mu.Unlock()
	if err != nil {
		return Response{}, err
	}
	return s.await(ctx, in)
}

func (s *Server) newComponent(user, channelID, messageID, customID string, values []string) (*interaction, error) {
	c := s.channels[channelID]
	if c == nil || s.users[user] == nil || !s.can(c, user, PermViewChannel) {
		return nil, forbidden("%s does not see the channel %s", user, channelID)
	}
	m := c.live(messageID)
	if m == nil || m.Ephemeral != "" && m.Ephemeral != user {
		return nil, forbidden("%s does not see the message %s", user, messageID)
	}
	var found object
	walk(m.components, func(o object) {
		options, _ := o["options"].([]any)
		if o["custom_id"] == customID || values == nil && slices.ContainsFunc(options, func(v any) bool { return v.(object)["value"] == customID }) {
			found = o
		}
	})
	switch {
	case found == nil:
		return nil, forbidden("the message %s has no component %q", messageID, customID)
	case found["disabled"] == true:
		return nil, forbidden("the component %q is disabled", customID)
	}
	if values == nil && number(found["type"]) == compStringMenu {
		values, customID = []string{customID}, found["custom_id"].(string)
	}
	kind := number(found["type"])
	data := object{"custom_id": customID, "component_type": kind, "id": found["id"]}
	if kind != compButton {
		if len(values) < number(found["min_values"]) || len(values) > number(found["max_values"]) {
			return nil, forbidden("%d values were chosen in %q, and that is not allowed", len(values), customID)
		}
		options, _ := found["options"].([]any)
		for _, v := range values {
			if kind == compStringMenu && !slices.ContainsFunc(options, func(o any) bool { return o.(object)["value"] == v }) {
				return nil, forbidden("the menu %q has no option %q", customID, v)
			}
		}
		if shown := strings.Join(values, " "); kind == compStringMenu {
			if shown != "" && m.chosen[user+"/"+customID] == shown {
				return nil, forbidden("the client of %s shows %q as chosen already, until the message is edited", user, shown)
			}
			if m.chosen == nil {
				m.chosen = map[string]string{}
			}
			m.chosen[user+"/"+customID] = shown
		}
		data["values"] = append([]string{}, values...)
		if kind != compStringMenu {
			data["resolved"] = object{}
		}
	}
	return s.begin(&interaction{kind: interComponent, user: user, channel: c, source: m, name: customID}, data)
}

// SubmitModal lets a person fill in a form that a Response opened, and send it off. Inputs that are not in values keep what stands
// in them. Lengths are checked as Discord's client does.
func (s *Server) SubmitModal(ctx context.Context, m *Modal, values map[string]string) (Response, error) {
	if m == nil || m.inter == nil {
		return Response{}, forbidden("no form is open")
	}
	rows := []any{}
	for _, in := range m.Inputs {
		v, given := values[in.CustomID]
		if !given {
			v = in.Value
		}
		n := units(v)
		if n > in.Max || n < in.Min && (in.Required || n > 0) || in.Required && n == 0 {
			return Response{}, forbidden("the text in %q is too long or too short", in.CustomID)
		}
		o := object{"type": compTextInput, "id": 2, "custom_id": in.CustomID, "value": v}
		if in.label {
			rows = append(rows, object{"type": compLabel, "id": 1, "component": o})
		} else {
			rows = append(rows, object{"type": compRow, "id": 1, "components": []any{o}})
		}
	}
	for id := range values {
		if !slices.ContainsFunc(m.Inputs, func(in Input) bool { return in.CustomID == id }) {
			return Response{}, forbidden("the form has no input %q", id)
		}
	}
	s.mu.Lock()
	p := m.inter
	in, err := s.begin(
		&interaction{kind: interModal, user: p.user, channel: p.channel, source: p.source, parent: p, name: m.CustomID},
		object{"custom_id": m.CustomID, "components": rows},
	)
	s.mu.Unlock()
	if err != nil {
		return Response{}, err
	}
	return s.await(ctx, in)
}

// Slash lets a person use a slash command, which has to be registered. name has the subcommand after a space. Options are text,
// bool, int or float64 as the command wants them; of a user, role or channel the id.
func (s *Server) Slash(ctx context.Context, user, channelID, name string, options map[string]any) (Response, error) {
	s.mu.Lock()
	in, err := s.newCommand(interCommand, user, channelID, name, options, "")
	s.mu.Unlock()
	if err != nil {
		return Response{}, err
	}
	return s.await(ctx, in)
}

// Complete lets a person type into an option with autocompletion, and returns the suggestions in Response.Choices.
func (s *Server) Complete(ctx context.Context, user, channelID, name, option, text string) (Response, error) {
	s.mu.Lock()
	in, err := s.newCommand(interAutocomplete, user, channelID, name, map[string]any{option: text}, option)
	s.mu.Unlock()
	if err != nil {
		return Response{}, err
	}
	return s.await(ctx, in)
}

func (s *Server) newCommand(kind int, user, channelID, name string, options map[string]any, focus string) (*interaction, error) {
	c := s.channels[channelID]
	if c == nil || s.users[user] == nil || !s.can(c, user, PermViewChannel|PermUseCommands) {
		return nil, forbidden("%s may not use commands in %s", user, channelID)
	}
	if c.thread != nil && c.thread.Archived {
		return nil, forbidden("the thread %s is archived", channelID) // docs: "Threads"
	}
	words := strings.Fields(name)
	var cmd *command
	for _, g := range []string{c.Guild, ""} {
		for _, x := range s.commands[g] {
			if len(words) > 0 && x.Name == words[0] && x.Kind == 1 && cmd == nil {
				cmd = x
			}
		}
	}
	if cmd == nil || c.Type == TypeDM && (cmd.Guild != "" || cmd.o["dm_permission"] == false) {
		return nil, forbidden("there is no command /%s in %s", name, channelID)
	}
	known := cmd.options
	wrap := func(o []any) []any { return o }
	if len(words) > 1 {
		i := slices.IndexFunc(known, func(o any) bool { x := o.(object); return x["name"] == words[1] && x["type"] == optSub })
		if i < 0 || len(words) > 2 {
			return nil, forbidden("there is no command /%s in %s", name, channelID)
		}
		known, _ = known[i].(object)["options"].([]any)
		wrap = func(o []any) []any {
			return []any{object{"type": optSub, "name": words[1], "options": o}}
		}
	} else if slices.ContainsFunc(known, func(o any) bool { return o.(object)["type"] == optSub }) {
		return nil, forbidden("the command /%s needs a subcommand", name)
	}
	given, resolved, err := s.given(c, known, options, focus)
	if err != nil {
		return nil, err
	}
	data := object{"id": cmd.ID, "name": cmd.Name, "type": 1}
	if all := wrap(given); len(all) > 0 {
		data["options"] = all
	}
	if len(resolved) > 0 {
		data["resolved"] = resolved
	}
	if cmd.Guild != "" {
		data["guild_id"] = cmd.Guild
	}
	return s.begin(&interaction{kind: kind, user: user, channel: c, name: "/" + name}, data)
}

// given makes the options of a command from what a person typed, in the command's order.
func (s *Server) given(c *channel, known []any, options map[string]any, focus string) ([]any, object, error) {
	out, used, resolved := []any{}, 0, object{}
	for _, k := range known {
		o := k.(object)
		name, kind := o["name"].(string), number(o["type"])
		v, has := options[name]
		if !has {
			if o["required"] == true && focus == "" {
				return nil, nil, forbidden("the option %q is required", name)
			}
			continue
		}
		used++
		var fits bool
		switch kind {
		case optInteger:
			_, fits = v.(int)
		case optBoolean:
			_, fits = v.(bool)
		case optNumber:
			_, fits = v.(float64)
		default:
			_, fits = v.(string)
		}
		if !fits && focus == "" {
			return nil, nil, forbidden("the option %q is not of the type that the command wants", name)
		}
		if high := number(o["max_length"]); kind == optString && high > 0 && units(fmt.Sprint(v)) > high {
			return nil, nil, forbidden("the option %q is too long", name)
		}
		choices, _ := o["choices"].([]any)
		if len(choices) > 0 && !slices.ContainsFunc(choices, func(x any) bool { return fmt.Sprint(x.(object)["value"]) == fmt.Sprint(v) }) {
			return nil, nil, forbidden("the option %q has no choice %v", name, v)
		}
		if kind == optUser {
			id, _ := v.(string)
			resolved["users"] = object{id: s.userJSON(id)}
			if g := s.guilds[c.Guild]; g != nil && g.members[id] != nil {
				m := s.partialMember(g, id)
				m["permissions"] = permText(s.perms(c, id))
				resolved["members"] = object{id: m}
			}
		}
		in := object{"type": kind, "name": name, "value": v}
		if name == focus {
			in["focused"] = true
		}
		out = append(out, in)
	}
	if used != len(options) {
		return nil, nil, forbidden("the command has not all of these options")
	}
	return out, resolved, nil
}

// begin sends INTERACTION_CREATE and starts the clock. The caller holds mu.
func (s *Server) begin(in *interaction, data object) (*interaction, error) {
	if s.closed {
		return nil, ErrClosed
	}
	in.id, in.token, in.began, in.done = s.newID(), secret(), s.now(), make(chan struct{})
	s.inters[in.id], s.byToken[in.token] = in, in
	if s.cfg.InteractionsEndpoint == "" { // docs: with an endpoint set, the gateway gets no interactions
		d := s.interactionJSON(in, data)
		s.dispatch(event{name: "INTERACTION_CREATE", guild: in.channel.Guild, render: always(d)})
	}
	s.start(func() {
		t := time.NewTimer(s.cfg.AckTimeout)
		defer t.Stop()
		select {
		case <-t.C:
			s.mu.Lock()
			in.dead = !in.answered
			s.bump()
			s.mu.Unlock()
		case <-in.done:
		case <-s.ctx.Done():
		}
	})
	return in, nil
}

// await returns what the app answered.
func (s *Server) await(ctx context.Context, in *interaction) (Response, error) {
	err := s.Wait(ctx, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return in.answered || in.dead
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		return Response{}, err
	case !in.answered:
		return Response{}, fmt.Errorf("%w (%s)", ErrNotAnswered, in.name)
	}
	return in.answer, nil
}

// owners is authorizing_integration_owners of an interaction.
func (s *Server) owners(in *interaction) object {
	// docs: the guild's id, or "0" in a direct message with the bot.
	if in.channel.Guild == "" {
		return object{"0": "0"}
	}
	return object{"0": in.channel.Guild}
}

// interactionJSON is an interaction object (docs: "Receiving and Responding", interaction object).
func (s *Server) interactionJSON(in *interaction, data object) object {
	c := in.channel
	channel := s.channelJSON(c)
	channel["permissions"] = permText(s.perms(c, in.user))
	out := object{
		"id": in.id, "application_id": s.cfg.AppID, "type": in.kind, "data": data, "channel": channel, "channel_id": c.ID,
		"token": in.token, "version": 1, "app_permissions": permText(s.perms(c, s.cfg.BotID)), "locale": "en-US",
		"entitlements": []any{}, "authorizing_integration_owners": s.owners(in), "attachment_size_limit": s.cfg.MaxFile,
		"context": 1,
	}
	if in.source != nil {
		out["message"] = s.messageJSON(in.source, true)
	}
	if g := s.guilds[c.Guild]; g != nil {
		m := s.memberJSON(g, in.user)
		m["permissions"] = permText(s.perms(c, in.user)) // docs: with the channel's overwrites
		out["member"], out["guild_id"], out["context"], out["guild_locale"] = m, g.id, 0, "en-US"
		out["guild"] = object{"id": g.id, "locale": "en-US", "features": []any{}}
		return out
	}
	out["user"] = s.userJSON(in.user)
	return out
}

// interactionMetadata is what a message says of the interaction that it answers (spec).
func (s *Server) interactionMetadata(in *interaction) object {
	out := object{"id": in.id, "type": in.kind, "user": s.userJSON(in.user), "authorizing_integration_owners": s.owners(in)}
	switch in.kind {
	case interComponent:
		out["interacted_message_id"] = in.source.ID
	case interModal:
		out["triggering_interaction_metadata"] = s.interactionMetadata(in.parent)
	}
	return out
}

// callback takes the first answer to an interaction (docs: "Receiving and Responding").
func (s *Server) callback(r *request) reply {
	in := s.inters[r.params["interaction_id"]]
	switch {
	case in == nil, in.token != r.params["interaction_token"], in.dead:
		return refuse(http.StatusNotFound, 10062, "Unknown interaction")
	case in.answered:
		return refuse(http.StatusBadRequest, 40060, "Interaction has already been acknowledged.")
	}
	o, isObject := r.object()
	f := newForm(o)
	if !isObject {
		f.bad("", "MODEL_TYPE_CONVERT", "Only dictionaries may be used in a ModelType")
		return f.reply()
	}
	kinds := []int{AnswerMessage, AnswerDeferred}
	if in.source != nil {
		kinds = append(kinds, AnswerDeferredUpdate, AnswerUpdate)
	}
	if in.kind != interModal {
		kinds = append(kinds, AnswerModal)
	}
	if in.kind == interAutocomplete {
		kinds = []int{AnswerChoices}
	}
	kind := f.choice("type", true, kinds...)
	if f.any() {
		return f.reply()
	}
	data := f.object("data")
	if data == nil {
		if kind == AnswerMessage || kind == AnswerModal || kind == AnswerChoices {
			if !f.any() {
				f.bad("data", "BASE_TYPE_REQUIRED", "This field is required")
			}
			return f.reply()
		}
		data = f.sub("data", object{})
	}
	answer := Response{Interaction: in.id, Type: kind}
	if no := s.respond(r, in, data, &answer); no != nil {
		return *no
	}
	in.answered, in.answer = true, answer
	close(in.done)
	s.bump()
	if r.query.Get("with_response") != "true" {
		return done()
	}
	out := object{"interaction": s.callbackJSON(in)}
	if m := in.original; m != nil && kind != AnswerDeferredUpdate {
		out["resource"] = object{"type": kind, "message": s.messageJSON(m, true)}
	}
	return ok(out)
}

func (s *Server) callbackJSON(in *interaction) object {
	out := object{"id": in.id, "type": in.kind, "channel_id": in.channel.ID}
	if in.channel.Guild != "" {
		out["guild_id"] = in.channel.Guild
	}
	if m := in.original; m != nil {
		out["response_message_id"], out["response_message_loading"], out["response_message_ephemeral"] = m.ID, m.Has(FlagLoading), m.Ephemeral != ""
	}
	return out
}

// respond does what an answer says. The caller holds mu.
func (s *Server) respond(r *request, in *interaction, f *form, answer *Response) *reply {
	var rep reply
	c := in.channel
	switch answer.Type {
	case AnswerMessage, AnswerDeferred:
		var d *draft
		if answer.Type == AnswerMessage {
			var no *reply
			if d, no = s.draftIn(f, r, false); no != nil {
				return no
			}
			if d.empty() {
				rep = emptyMessage()
				return &rep
			}
		} else {
			d = &draft{flags: f.int("flags", 0, 1<<30) & FlagEphemeral} // docs: the only flag there
			if f.any() {
				rep = f.reply()
				return &rep
			}
		}
		m, no := s.interactionMessage(in, d)
		if no != nil {
			return no
		}
		if answer.Type == AnswerDeferred {
			m.Flags |= FlagLoading
			in.deferred = true
		}
		in.original = m
		s.created(c, m)
	case AnswerDeferredUpdate:
		in.original = in.source
	case AnswerUpdate:
		d, no := s.draftIn(f, r, in.source.Has(FlagComponentsV2))
		if no != nil {
			return no
		}
		if in.source.deleted {
			rep = unknownMessage()
			return &rep
		}
		if no := s.change(c, in.source, d); no != nil {
			return no
		}
		in.original = in.source
	case AnswerModal:
		m := f.modal()
		switch {
		case f.any():
			rep = f.reply()
			return &rep
		case f.odd.what != "":
			rep = notPlayed(f.odd.what)
			return &rep
		}
		m.inter = in
		answer.Modal = m
	case AnswerChoices:
		list, _ := f.list("choices", 0, maxOptions)
		for _, x := range list {
			answer.Choices = append(answer.Choices, Choice{Name: x.text("name", 1, 100), Value: x.o["value"]})
		}
		if f.any() {
			rep = f.reply()
			return &rep
		}
	}
	if in.original != nil {
		shown := in.original.snapshot()
		answer.Message = &shown
	}
	return nil
}

// responseFlags are the flags of messages that answer interactions (docs: "Receiving and Responding").
const responseFlags = FlagSuppressEmbeds | FlagEphemeral | FlagSuppressNotifications | FlagComponentsV2

// interactionMessage stores a message that answers an interaction. Such a message needs no permission of the bot to write (that is
// how webhooks are), but a thread that is archived becomes active, and a locked one that is archived refuses
// (discord/discord-api-docs issue 5517). That a locked active one refuses too, as it does for ordinary messages, is a choice. The
// caller holds mu.
func (s *Server) interactionMessage(in *interaction, d *draft) (*message, *reply) {
	c := in.channel
	if c.thread != nil && c.thread.Locked && !s.can(c, s.cfg.BotID, PermManageThreads) {
		rep := locked()
		if c.thread.Archived {
			rep = archived()
		}
		return nil, &rep
	}
	m := &message{Message: Message{Author: s.cfg.BotID, Flags: d.flags & responseFlags, Interaction: in.id}, inter: in}
	if in.kind == interCommand {
		m.Type = MessageCommand
	}
	if m.Has(FlagEphemeral) {
		m.Ephemeral = in.user
	} else {
		s.unarchive(c)
	}
	s.fill(c, m, d)
	s.put(c, m)
	return m, nil
}

// hooked finds the interaction of a webhook route whose token still works.
func (s *Server) hooked(r *request) (*interaction, *reply) {
	in := s.byToken[r.params["webhook_token"]]
	var rep reply
	switch {
	case r.params["webhook_id"] != s.cfg.AppID, in == nil, !in.answered:
		// Before the first answer the webhook is not there yet. Clients report 10015 for that.
		rep = unknown("Webhook", 10015)
	case s.now().Sub(in.began) > s.cfg.TokenLife:
		rep = refuse(http.StatusUnauthorized, 50027, "Invalid Webhook Token")
	default:
		return in, nil
	}
	return nil, &rep
}

// response is the message that a webhook route means: the original one, or a follow-up.
func (s *Server) response(r *request) (*interaction, *message, *reply) {
	in, no := s.hooked(r)
	if no != nil {
		return nil, nil, no
	}
	id := r.params["message_id"]
	if id == "" || in.original != nil && id == in.original.ID {
		if in.original != nil && !in.original.deleted {
			return in, in.original, nil
		}
	}
	for _, m := range in.follows {
		if m.ID == id && !m.deleted {
			return in, m, nil
		}
	}
	rep := unknownMessage()
	return nil, nil, &rep
}

func (s *Server) getResponse(r *request) reply {
	_, m, no := s.response(r)
	if no != nil {
		return *no
	}
	return ok(s.messageJSON(m, true))
}

func (s *Server) editResponse(r *request) reply {
	in, m, no := s.response(r)
	if no != nil {
		return *no
	}
	d, no := s.draftOf(r, m.Has(FlagComponentsV2))
	if no != nil {
		return *no
	}
	if no := s.change(in.channel, m, d); no != nil {
		return *no
	}
	if m == in.original {
		in.deferred = false
	}
	return ok(s.messageJSON(m, true))
}

func (s *Server) deleteResponse(r *request) reply {
	in, m, no := s.response(r)
	if no != nil {
		return *no
	}
	s.remove(in.channel, m)
	return done()
}

// createFollowUp posts another message (docs: "Receiving and Responding", followup messages). Right after a deferred answer it
// edits that one in its place, as the docs say it does for old clients.
func (s *Server) createFollowUp(r *request) reply {
	in, no := s.hooked(r)
	if no != nil {
		return *no
	}
	d, no := s.draftOf(r, false)
	if no != nil {
		return *no
	}
	if d.empty() {
		return emptyMessage()
	}
	if in.deferred && in.original != nil && !in.original.deleted {
		if no := s.change(in.channel, in.original, d); no != nil {
			return *no
		}
		in.deferred = false
		return ok(s.messageJSON(in.original, true))
	}
	m, no := s.interactionMessage(in, d)
	if no != nil {
		return *no
	}
	in.follows = append(in.follows, m)
	s.created(in.channel, m)
	return ok(s.messageJSON(m, true))
}

// Commands returns the names of the registered commands of a guild, or the global ones for "", in order.
func (s *Server) Commands(guildID string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, c := range s.commands[guildID] {
		out = append(out, c.Name)
	}
	return out
}

// Interaction describes an interaction for tests that play an app by hand.
type Interaction struct {
	ID, Token string
	Answered  bool
	// Late says that the time for the first answer is over.
	Late bool
}

// Interactions returns all interactions so far, oldest first.
func (s *Server) Interactions() []Interaction {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Interaction
	for _, in := range s.inters {
		out = append(out, Interaction{ID: in.id, Token: in.token, Answered: in.answered, Late: in.dead})
	}
	slices.SortFunc(out, func(a, b Interaction) int {
		if less(a.ID, b.ID) {
			return -1
		}
		return 1
	})
	return out
}

// Text is what a person reads in an answer: the message's content, or the text of its displays.
func (m Message) Text() string {
	var list []any
	_ = json.Unmarshal(m.Components, &list)
	var b strings.Builder
	b.WriteString(m.Content)
	for _, c := range list {
		displayText(&b, c)
	}
	return b.String()
}
