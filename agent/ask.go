package agent

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/agent/llm"
	"countersign/store"
)

// quickMessage is the size in bytes up to which a message's tokens are counted inside the
// transaction. Longer ones are estimated later, to keep the transaction short.
const quickMessage = 4 << 10

// measure estimates the tokens that an entry takes in a prompt.
func (a *Agent) measure(e history.Entry) int {
	if a.cfg.Count == nil {
		return 0
	}
	return history.Measure(e, a.cfg.Count)
}

// size caches the token count of the last prompt and tool list.
type size struct {
	prompt string
	specs  []llm.ToolSpec
	tokens int
}

// systemSize is [Agent.systemSize] with the worker's cache in front.
func (w *worker) systemSize(prompt string, specs []llm.ToolSpec) int {
	same := func(a, b llm.ToolSpec) bool {
		return a.Name == b.Name && a.Description == b.Description && bytes.Equal(a.Schema, b.Schema)
	}
	if w.size.prompt != prompt || !slices.EqualFunc(w.size.specs, specs, same) {
		w.size = size{prompt, specs, w.a.systemSize(prompt, specs)}
	}
	return w.size.tokens
}

// systemSize estimates the tokens of a system prompt and its tools.
func (a *Agent) systemSize(prompt string, specs []llm.ToolSpec) int {
	if a.cfg.Count == nil {
		return 0
	}
	parts := []string{prompt}
	for _, s := range specs {
		parts = append(parts, s.Name, s.Description, string(s.Schema))
	}
	key := hash(parts...)
	if n, ok := a.sizes.Load(key); ok {
		return n.(int) //nolint:forcetypeassert // only this function stores
	}
	n := 0
	for _, p := range parts {
		n += a.cfg.Count(p)
	}
	a.sizes.Store(key, n)
	return n
}

// maxSummaries limits how many summaries are written for one request.
const maxSummaries = 10

// question is one request to the model, while it is shortened to fit the window.
type question struct {
	w       *worker
	s       step
	profile Profile
	prompt  string
	tools   []llm.ToolSpec
	show    func(llm.Delta)
	waiting map[string]string // see [history.Options]
}

// ask sends the conversation to the model, summarised if it does not fit. If the server
// still reports it as too long, ask retries once with less.
func (w *worker) ask(ctx context.Context, s step, key string) (llm.Reply, error) {
	draft := &draft{key: key, kind: chat.ProgressDraft, show: func(p chat.Progress) { w.show(ctx, p) }, now: w.a.cfg.Now, live: w.a.cfg.Live}
	q := question{
		w: w, s: s, profile: w.a.cfg.Desk.Profile(w.thread, s.agent()), prompt: w.a.cfg.Desk.Prompt(w.thread, s.agent(), w.place(s.turn)),
		tools: w.a.cfg.Tools.Specs(w.thread, s.agent(), w.place(s.turn)), show: draft.delta, waiting: w.waitingTexts(s),
	}
	if s.inAside() {
		q.tools = append(slices.Clip(q.tools), withdrawSpec)
	}
	if s.agent() != "" {
		q.show = func(d llm.Delta) { // people see a sub-agent's waits, not its words
			if d.Note != "" {
				w.show(ctx, chat.Progress{Key: key, Kind: chat.ProgressDraft, Status: d.Note})
			}
		}
	}
	for try := 0; ; try++ {
		view, err := q.view(ctx)
		if err != nil {
			return llm.Reply{}, err
		}
		reply, err := q.send(ctx, view.Items, q.tools, view.Estimate, q.show)
		le, ok := errors.AsType[*llm.Error](err)
		if err == nil || try > 0 || !ok || !le.TooLong {
			return reply, err
		}
		w.log.Warn("the conversation is too long for the model; sending less of it")
		w.a.calibration.Over(q.profile.Model)
		q.show(llm.Delta{Reset: true, Note: "the conversation is too long for the model; sending less of it"})
	}
}

// send sends a request and calibrates the token estimate with the reported usage.
func (q question) send(ctx context.Context, items []llm.Item, specs []llm.ToolSpec, estimate int, show func(llm.Delta)) (llm.Reply, error) {
	ctx = q.w.a.cfg.Watcher.Within(ctx, q.w.thread, q.s.turn.scope)
	reply, err := q.w.a.cfg.Model.Reply(ctx, llm.Request{
		Thread: string(q.w.thread), Model: q.profile.Model, Items: items, Tools: specs, UsedCallIDs: q.w.state.used,
	}, show)
	if err == nil && estimate > 0 {
		q.w.a.calibration.Learn(q.profile.Model, estimate, reply.Usage.In)
	}
	return reply, err
}

// view renders the conversation for the model, after writing a summary if one is needed.
func (q question) view(ctx context.Context) (history.View, error) {
	w := q.w
	render := func() history.View {
		return history.Render(q.prompt, w.entries, history.Options{
			Scope: q.s.viewScope(), Thread: w.thread, Key: w.a.cfg.Key, Waiting: q.waiting,
			Budget: history.Budget{Window: w.a.cfg.Window, System: w.systemSize(q.prompt, q.tools), Factor: w.a.calibration.Factor(q.profile.Model)},
		})
	}
	view := render()
	// Each summary replaces more than the one before; a very long transcript takes several.
	for i := 0; view.Need == history.Summarise && i < maxSummaries; i++ {
		if err := q.summarise(ctx, view); err != nil {
			if ctx.Err() != nil || view.Tokens > view.Limit {
				return view, err
			}
			w.log.Warn("no summary could be had; the conversation is sent as it is", "error", err)
			return view, nil
		}
		view = render()
	}
	if view.Need == history.TooLong || view.Limit > 0 && view.Tokens > view.Limit {
		return view, &llm.Error{Sentence: sayTooLong}
	}
	return view, nil
}

// summarise has the model summarise the older part of the conversation. From then on
// prompts contain the summary; the transcript keeps everything.
func (q question) summarise(ctx context.Context, view history.View) error {
	w := q.w
	q.show(llm.Delta{Note: "the conversation is long; summarising its older part"})
	reply, err := q.send(ctx, view.SummaryItems(), nil, 0, func(d llm.Delta) {
		if d.Note != "" {
			q.show(llm.Delta{Note: d.Note})
		}
	})
	if err != nil {
		return err
	}
	text, _ := cutReply(strings.TrimSpace(w.a.cfg.Redact(reply.Text)), replyLimit(w.a.cfg.Window))
	if text == "" {
		return &llm.Error{Sentence: sayNoSummary}
	}
	if err := w.write(ctx, func(tx store.Tx) { w.charge(tx, reply) }, view.SummaryEntry(text)); err != nil {
		return err
	}
	return w.warnNearCaps(ctx)
}
