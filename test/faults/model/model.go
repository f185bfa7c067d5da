// Package model is a double of a Chat Completions server for the fault suite. What
// it answers depends on the conversation in the request alone: messages of people
// hold jobs ("job do a-1", "job say a-2"), a job to do becomes one call of run_shell
// that appends the job's name to a file of its own, and the last words of a turn report on all
// jobs that were not reported yet. So a request that comes twice gets the same answer
// twice, and a history that lost something shows.
//
// Next and Always make it behave as servers do on bad days: statuses, silence,
// streams that break off, garbage, calls that make no sense.
//
// It is no model of language, and it judges nothing that the bot does.
package model

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Kind is what goes wrong with one answer.
type Kind string

// The kinds of bad answers.
const (
	Good          Kind = ""
	Status        Kind = "status"          // Fault.Code, with Retry-After when Fault.Wait is set
	Silence       Kind = "silence"         // no byte until the client gives up or Fault.Wait is over, then a good answer
	CutBefore     Kind = "cut-before"      // the connection ends without an answer
	CutInText     Kind = "cut-in-text"     // the stream ends within the text
	CutInCall     Kind = "cut-in-call"     // the stream ends within the arguments of a call
	BrokenFrame   Kind = "broken-frame"    // a frame that is not JSON
	NotAStream    Kind = "not-a-stream"    // a web page in the place of an answer
	ErrorInStream Kind = "error-in-stream" // an error after some text
	NoChoices     Kind = "no-choices"      // frames without choices, and the end
	Nothing       Kind = "nothing"         // a reply without text and calls
	UnknownTool   Kind = "unknown-tool"    // a call of a tool that does not exist
	BadArguments  Kind = "bad-arguments"   // a call whose arguments are not JSON
	WrongTypes    Kind = "wrong-types"     // a call whose arguments are JSON of another kind
	SameIDs       Kind = "same-ids"        // two calls with one id
	NoID          Kind = "no-id"           // a call without an id
	Huge          Kind = "huge"            // 2 MB of text after the report
	Loop          Kind = "loop"            // one more look, always
)

// Kinds are all bad answers, in the order of the list above.
func Kinds() []Kind {
	return []Kind{
		Status, Silence, CutBefore, CutInText, CutInCall, BrokenFrame, NotAStream, ErrorInStream, NoChoices, Nothing, UnknownTool,
		BadArguments, WrongTypes, SameIDs, NoID, Huge, Loop,
	}
}

// Fault is one bad answer.
type Fault struct {
	Kind Kind
	// Code is the HTTP status of Status; 0 is 500.
	Code int
	// Wait is the Retry-After of Status in whole seconds, and the length of Silence.
	Wait time.Duration
}

// HugeText is how many bytes Huge adds.
const HugeText = 2 << 20

// Server is a running double. Its methods may be called from any goroutine.
type Server struct {
	counter string // the directory in which the commands of jobs write
	ln      net.Listener
	srv     *http.Server
	wg      sync.WaitGroup

	mu       sync.Mutex
	next     []Fault
	always   Fault
	requests int
	served   map[Kind]int
	told     map[string]string
}

// New starts a double on loopback whose commands write into a directory. End it with
// Close.
func New(counter string) (*Server, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("the model cannot listen: %w", err)
	}
	s := &Server{counter: counter, ln: ln, served: map[Kind]int{}, told: map[string]string{}}
	s.srv = &http.Server{Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: 10 * time.Second}
	s.wg.Go(func() { _ = s.srv.Serve(ln) })
	return s, nil
}

// Address is where it listens, as host:port. The base of the API is below /v1.
func (s *Server) Address() string { return s.ln.Addr().String() }

// Close ends the server and its connections.
func (s *Server) Close() {
	_ = s.srv.Close()
	s.wg.Wait()
}

// Next queues bad answers for the next requests, one each.
func (s *Server) Next(f ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = append(s.next, f...)
}

// Always is how requests are answered that have no answer from Next.
func (s *Server) Always(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.always = f
}

// Waiting is how many answers of Next nobody has asked for yet.
func (s *Server) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.next)
}

// Served is how many answers of a kind were given.
func (s *Server) Served(k Kind) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.served[k]
}

// Requests is how many requests came.
func (s *Server) Requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

// Told is what the bot last said of the call of a job, "" when it said nothing.
func (s *Server) Told(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.told[id]
}

// note keeps the results of calls for Told.
func (s *Server) note(messages []Message) {
	calls := map[string]string{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range messages {
		for _, c := range m.Calls {
			calls[c.ID] = Asks(c.Function.Arguments)
		}
		if id := calls[m.Call]; m.Role == "tool" && id != "" && !waits(said(m.Content)) {
			s.told[id] = said(m.Content)
		}
	}
}

func (s *Server) fault() Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	f := s.always
	if len(s.next) > 0 {
		f, s.next = s.next[0], s.next[1:]
	}
	s.served[f.Kind]++
	return f
}

// Message is one message of a request, as far as the double reads it.
type Message struct {
	Role    string `json:"role"`
	Content any    `json:"content"`
	Calls   []struct {
		ID       string `json:"id"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
	Call string `json:"tool_call_id"`
}

// Call is a call of a reply.
type Call struct{ ID, Name, Arguments string }

// Reply is what the double answers.
type Reply struct {
	Text  string
	Calls []Call
}

var (
	job      = regexp.MustCompile(`\bjob (do|say) ([a-z0-9]+-[0-9]+)\b`)
	reported = regexp.MustCompile(`\bReport ([a-z0-9]+-[0-9]+) ([a-z]+)\.`)
	half     = regexp.MustCompile(`^(Report|Report [a-z0-9]+-[0-9]*|Report [a-z0-9]+|Report [a-z0-9]+-[0-9]+ [a-z]*|I take|I take the|I take the job|I take the job [a-z0-9]+-?[0-9]*)$`)
	appends  = regexp.MustCompile(`echo ran-([a-z0-9]+-[0-9]+)\b`)
)

// Ask is the text of a message that asks for something to be done or said.
func Ask(do bool, id string) string {
	if do {
		return "please take the job do " + id
	}
	return "please take the job say " + id
}

// Reports are the reports in a text: for each job its outcome, which is one of talk,
// ran, refused, unknown and failed.
func Reports(text string) map[string]string {
	var out map[string]string
	for _, m := range reported.FindAllStringSubmatch(text, -1) {
		if out == nil {
			out = map[string]string{}
		}
		out[m[1]] = m[2]
	}
	return out
}

// BreaksOff says that a text is a beginning of something that the double says, and not
// the whole of it.
func BreaksOff(text string) bool {
	text = strings.TrimSpace(text)
	for _, whole := range []string{"I take the job ", "Report "} {
		if text != "" && strings.HasPrefix(whole, text+" ") {
			return true
		}
	}
	last := text[strings.LastIndex(text, "\n")+1:]
	return half.MatchString(last)
}

// Asks is the job of a command, "" when it is none of a job.
func Asks(command string) string {
	if m := appends.FindStringSubmatch(command); m != nil {
		return m[1]
	}
	return ""
}

// Command is the command of a job. Each job has a file of its own below the directory
// counter: an approval is bound to the file that a command names, so a file of all
// jobs would make one job's run the end of another's approval. It takes a moment, so
// that what fails can fail in the middle of it.
func Command(counter, id string) string {
	return fmt.Sprintf("echo %s >> %s/%s; sleep 0.2; echo ran-%s", id, counter, id, id)
}

// Answer is what a good double answers to a conversation.
func Answer(counter string, messages []Message) Reply {
	var order []string
	do := map[string]bool{}
	done, calls, results := map[string]bool{}, map[string]string{}, map[string]string{}
	for _, m := range messages {
		text := said(m.Content)
		switch m.Role {
		case "user":
			for _, j := range job.FindAllStringSubmatch(text, -1) {
				if !slices.Contains(order, j[2]) {
					order = append(order, j[2])
					do[j[2]] = j[1] == "do"
				}
			}
		case "assistant":
			for id := range Reports(text) {
				done[id] = true
			}
			for _, c := range m.Calls {
				if id := Asks(c.Function.Arguments); id != "" {
					calls[id] = c.ID
				}
			}
		case "tool":
			results[m.Call] = text
		}
	}
	waiting := false
	for _, r := range results {
		waiting = waiting || waits(r)
	}
	var report []string
	for _, id := range order {
		switch call, called := calls[id]; {
		case done[id] || waits(results[call]):
		case !do[id]:
			report = append(report, fmt.Sprintf("Report %s talk.", id))
		case !called && waiting:
		case !called:
			return Reply{Text: "I take the job " + id + ".", Calls: []Call{{"call-" + id, "run_shell", arguments(Command(counter, id), true)}}}
		default:
			report = append(report, fmt.Sprintf("Report %s %s.", id, outcome(id, results[call])))
		}
	}
	switch {
	case len(report) == 0 && waiting:
		return Reply{Text: "I'll do that once the open request is decided."}
	case len(report) == 0:
		return Reply{Text: "There is nothing to report."}
	}
	return Reply{Text: strings.Join(report, "\n\n")}
}

// waits says that a call has no result yet, because people decide.
func waits(result string) bool { return strings.Contains(result, "Waiting for approval") }

func said(content any) string {
	switch c := content.(type) {
	case string:
		return c
	case []any:
		var b strings.Builder
		for _, part := range c {
			if p, ok := part.(map[string]any); ok {
				fmt.Fprintf(&b, "%v\n", p["text"])
			}
		}
		return b.String()
	}
	return ""
}

// outcome reads what the bot says of a call.
func outcome(id, result string) string {
	switch low := strings.ToLower(result); {
	case strings.Contains(low, "outcome of this call is unknown"), strings.Contains(low, "may or may not have happened"):
		return "unknown"
	case strings.Contains(result, "ran-"+id):
		return "ran"
	case strings.Contains(low, "denied"), strings.Contains(low, "expired"), strings.Contains(low, "before it ran"), strings.Contains(low, "but not run"), strings.Contains(low, "withdrawn"):
		return "refused"
	}
	return "failed"
}

func arguments(command string, mutation bool) string {
	b, _ := json.Marshal(map[string]any{"command": command, "risk": "low", "mutation": mutation, "privesc": false, "why": "somebody asked for the job"})
	return string(b)
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Messages []Message `json:"messages"`
	}
	if !strings.HasSuffix(r.URL.Path, "/chat/completions") {
		http.NotFound(w, r)
		return
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.note(req.Messages)
	f, reply := s.fault(), Answer(s.counter, req.Messages)
	out := &stream{w: w}
	switch f.Kind {
	case Status:
		refuse(w, f)
		return
	case Silence:
		hold(r.Context(), f.Wait)
	case CutBefore:
		panic(http.ErrAbortHandler)
	case NotAStream:
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<html><body>502 Bad Gateway</body></html>"))
		return
	case Nothing:
		out.finish("stop")
		return
	case NoChoices:
		out.frame(`{"id":"x","object":"chat.completion.chunk","created":1,"model":"scripted","choices":[]}`)
		out.done()
		return
	case UnknownTool:
		reply = Reply{Calls: []Call{{"call-x", "launch_rocket", `{"where":"moon"}`}}}
	case BadArguments:
		reply = Reply{Calls: []Call{{"call-x", "run_shell", `{"command": "uptime", "risk": "lo`}}}
	case WrongTypes:
		reply = Reply{Calls: []Call{{"call-x", "run_shell", `["uptime", 7, null]`}}}
	case SameIDs:
		look := Call{"call-same", "run_shell", arguments("uptime", false)}
		for i := range reply.Calls {
			reply.Calls[i].ID = look.ID
		}
		reply.Calls = append(reply.Calls, look, look)
	case NoID:
		reply.Calls = append(reply.Calls, Call{"", "run_shell", arguments("uptime", false)})
	case Loop:
		reply = Reply{Calls: []Call{{"call-loop", "run_shell", arguments(fmt.Sprint("ls /tmp/", s.Requests()), false)}}}
	case Huge:
		reply.Text += "\n\n" + strings.Repeat("All work and no play. ", HugeText/22)
	default:
	}
	out.write(f.Kind, reply)
}

func refuse(w http.ResponseWriter, f Fault) {
	code := f.Code
	if code == 0 {
		code = http.StatusInternalServerError
	}
	if f.Wait > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(int(f.Wait.Seconds())))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w, `{"error":{"message":"the double says %d","type":"server_error","code":null}}`, code)
}

func hold(ctx context.Context, d time.Duration) {
	var end <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		end = t.C
	}
	select {
	case <-ctx.Done():
	case <-end:
	}
}

// stream writes frames of server-sent events.
type stream struct{ w http.ResponseWriter }

func (s *stream) frame(data string) {
	s.w.Header().Set("Content-Type", "text/event-stream")
	_, _ = fmt.Fprintf(s.w, "data: %s\n\n", data)
	if f, ok := s.w.(http.Flusher); ok {
		f.Flush()
	}
}

func (s *stream) delta(delta map[string]any, finish any) {
	b, _ := json.Marshal(map[string]any{"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "scripted",
		"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}})
	s.frame(string(b))
}

func (s *stream) done() { s.frame("[DONE]") }

func (s *stream) finish(why string) {
	s.delta(map[string]any{}, why)
	s.done()
}

func (s *stream) write(k Kind, r Reply) {
	text := r.Text
	if k == CutInText {
		text = text[:len(text)/2]
	}
	s.delta(map[string]any{"role": "assistant", "content": text}, nil)
	switch k {
	case CutInText:
		panic(http.ErrAbortHandler)
	case BrokenFrame:
		s.frame(`{"id":"x","object":"chat.completion.chu`)
	case ErrorInStream:
		s.frame(`{"error":{"message":"the double is overloaded","type":"server_error","code":"server_error"}}`)
		return
	default:
	}
	finish := "stop"
	for i, c := range r.Calls {
		finish = "tool_calls"
		half := len(c.Arguments) / 2
		s.delta(map[string]any{"tool_calls": []any{map[string]any{"index": i, "id": c.ID, "type": "function",
			"function": map[string]any{"name": c.Name, "arguments": c.Arguments[:half]}}}}, nil)
		if k == CutInCall {
			panic(http.ErrAbortHandler)
		}
		s.delta(map[string]any{"tool_calls": []any{map[string]any{"index": i, "function": map[string]any{"arguments": c.Arguments[half:]}}}}, nil)
	}
	if k == CutInCall {
		panic(http.ErrAbortHandler) // there was no call: within the text, then
	}
	s.finish(finish)
}
