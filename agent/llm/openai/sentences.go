package openai

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	goopenai "github.com/sashabaranov/go-openai"

	"countersign/agent/llm"
)

// What people read when a model can't be asked, side by side: what is wrong; what to do. The
// doctor splits them there.

// sayRetry says why the model is asked again.
func (c *Client) sayRetry(f *fault, wait time.Duration) string {
	what := "The model's answer was cut off"
	switch {
	case f.status == http.StatusTooManyRequests:
		what = "The model is overloaded"
	case f.status == http.StatusUnauthorized:
		what = "The model's key was replaced"
	case f.kind == refused, f.kind == inStream:
		what = "The model's server has a problem"
	case f.kind == silent:
		what = "The model stopped responding"
	case f.kind == unreachable:
		what = "The model's server " + c.at.host + " can't be reached"
	case f.kind == garbled:
		what = "The model's answer was garbled"
	}
	if wait < time.Second {
		return what + ", trying again."
	}
	return fmt.Sprintf("%s, trying again in %s.", what, wait.Round(time.Second))
}

// final is the error for people, about the last of the models that were asked.
func (c *Client) final(f *fault, model string, attempts int, others []string) *llm.Error {
	e := &llm.Error{Sentence: c.sayFault(f, named(model)), Status: f.status, Retry: f.after, TooLong: f.tooLong, Cause: f}
	var more []string
	if attempts > 1 {
		more = append(more, fmt.Sprintf("tried %d times", attempts))
	}
	if len(others) > 0 {
		more = append(more, strings.Join(others, ", ")+" didn't answer either")
	}
	if len(more) > 0 {
		e.Sentence = strings.TrimSuffix(e.Sentence, ".") + " (" + strings.Join(more, "; ") + ")."
	}
	return e
}

// named is a model's name in a sentence.
func named(model string) string {
	if model == "" {
		return "that is its default"
	}
	return model
}

// sayFault says what is wrong with a model and what to do.
func (c *Client) sayFault(f *fault, model string) string {
	said := ""
	if f.message != "" {
		said = " (" + f.message + ")"
	}
	switch {
	case f.tooLong:
		return "The conversation is too long for the model " + model + "; start a new thread or choose a model with a larger window in OPENAI_MODEL."
	case f.quota:
		return "The account behind OPENAI_API_KEY has no credit left at " + c.at.host + "; check its plan and billing."
	case f.status == http.StatusUnauthorized:
		return "The model's server " + c.at.host + " rejects the key; check OPENAI_API_KEY and OPENAI_BASE_URL."
	case f.status == http.StatusForbidden:
		return "The key can't use the model " + model + " at " + c.at.host + "; check OPENAI_API_KEY and OPENAI_MODEL."
	case f.status == http.StatusNotFound || f.status == http.StatusMethodNotAllowed:
		return "The model " + model + " or the address wasn't found at " + c.at.host + "; check OPENAI_MODEL, and that OPENAI_BASE_URL ends as its documentation says (often in /v1)."
	case f.status == http.StatusTooManyRequests:
		if f.after >= longestWait {
			return "The model's server " + c.at.host + " accepts no more requests for " + f.after.Round(time.Second).String() + "; try again then, or check the limits of OPENAI_API_KEY."
		}
		return "The model's server " + c.at.host + " is overloaded or reached its rate limit; try again in a few minutes."
	case f.status >= 500:
		return fmt.Sprintf("The model's server %s has a problem (status %d); try again in a few minutes.", c.at.host, f.status)
	case f.status >= 300 && f.status < 400:
		return fmt.Sprintf("The model's server %s redirects requests (status %d); check OPENAI_BASE_URL, also http or https.", c.at.host, f.status)
	case f.kind == refused || (f.kind == inStream && f.status != 0):
		return fmt.Sprintf("The model's server %s refused the request with status %d%s; check OPENAI_MODEL and OPENAI_BASE_URL.", c.at.host, f.status, said)
	case f.kind == inStream:
		return "The model's server " + c.at.host + " ended its answer with an error" + said + "; try again in a few minutes."
	case f.kind == webPage:
		return "The server " + c.at.host + " sent a web page instead of a model's reply; check OPENAI_BASE_URL (it often ends in /v1)."
	case f.kind == garbled:
		return "The server " + c.at.host + " sent something that isn't a model's reply; check OPENAI_BASE_URL."
	case f.kind == untranslated:
		return "The model's server " + c.at.host + " doesn't turn the calls of " + model + " into tool calls; switch its parser for tool calls on (in vLLM --enable-auto-tool-choice and --tool-call-parser), or set OPENAI_MODEL to another model."
	case f.kind == filtered:
		return "The content filter of " + c.at.host + " stopped the model's answer; rephrase your message or leave out the text that may have triggered it."
	case f.kind == tooBig:
		return "The model's answer was too large; ask for less at once."
	case f.kind == silent:
		return "The model's server " + c.at.host + " timed out; try again, or check whether it's overloaded."
	case f.kind == incomplete:
		return "The model's answer from " + c.at.host + " was cut off; try again in a few minutes."
	case f.kind == untrusted:
		return "The model's server " + c.at.host + " has a certificate that this machine doesn't trust; check OPENAI_BASE_URL and the system's certificates."
	case errors.Is(f.cause, goopenai.ErrReasoningToolsRequireResponses):
		return "The model " + model + " can call tools only through the Responses API; set COUNTERSIGN_MODEL_API to auto or responses, or set OPENAI_MODEL to another model."
	case f.kind == unsupported:
		return "The model " + model + " isn't a chat model; set OPENAI_MODEL to another one."
	}
	return "The model's server " + c.at.host + " can't be reached; check OPENAI_BASE_URL and the network."
}

// sayLeftOut says that a server refuses tools.
func sayLeftOut(host string, refused []llm.ToolSpec, f *fault) string {
	names, verb := strings.Join(toolNames(refused), ", "), "isn't"
	what := "the tool " + names
	if len(refused) > 1 {
		what, verb = "the tools "+names, "aren't"
	}
	said := ""
	if f.message != "" {
		said = ", because the model's server " + host + " refuses what it's told of them (" + f.message + ")"
		if len(refused) == 1 {
			said = ", because the model's server " + host + " refuses its schema (" + f.message + ")"
		}
	}
	return strings.ToUpper(what[:1]) + what[1:] + " " + verb + " offered to the model" + said + "."
}
