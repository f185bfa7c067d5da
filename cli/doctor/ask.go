package doctor

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"countersign/agent/llm"
	"countersign/agent/llm/openai"
	"countersign/bot/machines"
	"countersign/cli/words"
	"countersign/config"
	"countersign/tools/hostkey"
)

// Model checks the model of an environment as the doctor does: what it found, and what to do
// where that is not well.
func Model(ctx context.Context, e config.Env, f config.File) (found, fix string, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, modelLimit)
	defer cancel()
	d := &doctor{alive: io.Discard}
	return d.answers(ctx, e, f, e.OpenAIModel).said()
}

// Models lists what the model server of an environment offers, where it says so. Without a key, one that wants
// a key is well, too.
func Models(ctx context.Context, e config.Env) (names []string, found, fix string, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	names, err := openai.Models(ctx, openai.Config{APIKey: string(e.OpenAIKey), BaseURL: e.OpenAIBaseURL, Headers: e.ModelHeaders})
	le, served := errors.AsType[*llm.Error](err)
	r := fine("it offers %s", words.Plural(len(names), "model"))
	switch {
	case err == nil:
	case served && le.Status == http.StatusUnauthorized && e.OpenAIKey == "":
		r = fine("it answers, and wants a key")
	case served && le.Status != http.StatusUnauthorized && le.Status >= 400 && le.Status < 500:
		r = fine("it answers, without a list of its models")
	case served:
		r = fromSentence("FAIL", strings.TrimSuffix(le.Sentence, "."), "check OPENAI_BASE_URL and the network")
	default:
		r = fromSentence("FAIL", err.Error(), "correct it")
	}
	found, fix, ok = r.said()
	return names, found, fix, ok
}

// Target checks whether a target is reached, as the doctor does. unknown is the line for known_hosts of a host whose
// key isn't known yet.
func Target(ctx context.Context, e config.Env, f config.File, name string) (found, fix, unknown string, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	p := &targetCheck{file: f}
	var err error
	p.m, err = machines.New(name, &machines.Options{Env: e, File: f, Log: slog.New(&p.hears), HostKeys: e.KnownHosts(), Keys: hostkey.InFile(e.KnownHosts())})
	if err != nil {
		found, fix, ok = sentence(p.m, err, "correct targets."+name).said()
		return found, fix, "", ok
	}
	defer p.m.Close()
	found, fix, ok = p.reaches(ctx).said()
	return found, fix, p.unknown, ok
}

// said is what a result says to people.
func (r result) said() (found, fix string, ok bool) { return r.text, r.fix, r.label != "FAIL" }
