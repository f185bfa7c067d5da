package openai

import (
	"context"
	"encoding/json"
	"io"
	"sync"

	goopenai "github.com/sashabaranov/go-openai"

	"countersign/agent/llm"
)

// question is one request in the form of one API, ready to be sent any number
// of times. The two APIs differ in nothing else: retries, the watchdog, headers
// and errors are the same.
type question struct {
	// open sends it.
	open func(context.Context, *goopenai.Client) (stream, error)
	// edit changes the body that the library wrote; nil leaves it.
	edit func(body []byte) ([]byte, error)
	// reader makes what puts an answer together.
	reader func() reader
	// has are the things in it that a server may refuse.
	has wish
	// once are those that say nothing about other requests.
	once wish
}

// stream gives the frames of an answer one by one.
type stream interface {
	RecvRaw() ([]byte, error)
	io.Closer
}

// reader puts the frames of one answer together.
type reader interface {
	// add takes one frame and returns the text that it brought.
	add(frame []byte) (string, *fault)
	// ended says whether the answer is complete, but for the usage perhaps.
	ended() bool
	// complete says whether a stream that ends properly here is a whole answer.
	complete() bool
	// reply returns the answer once it is complete.
	reply() llm.Reply
}

// wish is a set of what a server said that it wants otherwise.
type wish uint

const (
	// wantResponses: this model is asked through the Responses API.
	wantResponses wish = 1 << iota
	// wantOtherMax: the bound of the reply has another name.
	wantOtherMax
	// wantNoUsage: streams take no options.
	wantNoUsage
	// wantNoInclude: this model encrypts no reasoning.
	wantNoInclude
	// wantNoOpaque: what the provider gave is not taken back.
	wantNoOpaque
	// wantReasoning: every message with calls must have some reasoning, though empty.
	wantReasoning
	// wantAnotherModel: this model is not there. No other form of the request helps.
	wantAnotherModel
)

// habits remembers what the server of a client wants for each of its models.
type habits struct {
	mu    sync.Mutex
	known map[string]wish
}

func (h *habits) of(model string) wish {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.known[model]
}

func (h *habits) learn(model string, w wish) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.known == nil {
		h.known = map[string]wish{}
	}
	h.known[model] |= w
}

// question writes a request in the form that the server wants.
func (c *Client) question(model string, r llm.Request, want wish) question {
	responses := c.cfg.API == "responses" || (c.cfg.API == "auto" && (c.at.prefersResponses(model) || want&wantResponses != 0))
	if responses {
		return responsesQuestion(c.at, model, r, want)
	}
	q := chatQuestion(c.at, model, r, want)
	if c.cfg.API == "auto" {
		q.has |= wantResponses
	}
	return q
}

// opaque is what [llm.Reply.Opaque] holds. It goes back only to the model, server
// and API that it came from.
type opaque struct {
	API   string `json:"api"`
	Host  string `json:"host"`
	Model string `json:"model"`
	// Members are of a message of the chat API.
	Members map[string]json.RawMessage `json:"members,omitempty"`
	// Output is the order of the items of the Responses API.
	Output []outputItem `json:"output,omitempty"`
}

// maxOpaque bounds an opaque part, which is stored with the transcript; a larger
// one is left out.
const maxOpaque = 1 << 20

func (o *opaque) encode() json.RawMessage {
	raw, err := encode(o)
	if err != nil || len(raw) > maxOpaque {
		return nil
	}
	return raw
}

// opaqueOf reads the opaque part of an item, or nil when it is not this API's,
// server's and model's.
func opaqueOf(it llm.Item, api string, at *endpoint, model string) *opaque {
	var o opaque
	if len(it.Opaque) == 0 || json.Unmarshal(it.Opaque, &o) != nil || o.API != api || o.Host != at.host || o.Model != model {
		return nil
	}
	return &o
}
