// Package client is for programs that let people countersign what they do: a command on one of the
// bot's targets runs immediately if it is proven to only read, and otherwise once people approve it.
//
//	c := client.New("https://bot.example.com", os.Getenv("COUNTERSIGN_TOKEN"))
//	r, err := c.Run(ctx, client.Request{Target: "web-1", Command: "systemctl restart nginx", Key: "release-42/restart"})
//
// Run waits. [Client.Start] returns a handle instead. A [Request] with a Key can be sent again, after
// a crash too: it runs once. The names here stay as they are.
//
// The package needs nothing but Go's standard library.
package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	// maxAnswer bounds an answer of the bot, in bytes.
	maxAnswer = 64 << 20
	// patience is how long the bot may take to answer beyond what it was told to wait.
	patience = 30 * time.Second
	// waits is how long one request waits for news of a call.
	waits = 25 * time.Second
	// away is how long a bot may not answer, as while another replica takes over, or refuse because of too many requests. Agents wait a minute for a tool,
	// and then they read nothing of why.
	away = 45 * time.Second
	// again is the pause before a request is sent again.
	again = 300 * time.Millisecond
)

// Client talks to a bot. It is safe for concurrent use.
type Client struct {
	base, token string
	// HTTP sends the requests. It must not follow redirects: the token is for one address.
	HTTP *http.Client
}

// New returns a client of the bot at an address, such as "https://bot.example.com", with a token as
// the command "login --print" prints it.
func New(address, token string) *Client {
	return &Client{base: strings.TrimRight(address, "/"), token: token, HTTP: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// FromEnvironment is New with COUNTERSIGN_URL and COUNTERSIGN_TOKEN.
func FromEnvironment() (*Client, error) {
	address, token := os.Getenv("COUNTERSIGN_URL"), os.Getenv("COUNTERSIGN_TOKEN")
	if address == "" || token == "" {
		return nil, errors.New("set COUNTERSIGN_URL to the bot's address and COUNTERSIGN_TOKEN to a token of it")
	}
	return New(address, token), nil
}

// Address is the bot's.
func (c *Client) Address() string { return c.base }

// Error is an answer with which the bot refuses something, or fails, or a request that no bot may get. Its sentence is for people.
type Error struct {
	Status   int // of HTTP; 0 is one that was not sent
	Sentence string
	After    time.Duration // after which it can be tried again; 0 is not known
}

// Error implements error.
func (r *Error) Error() string { return r.Sentence }

// Do asks the bot by its API, which docs/openapi.yaml describes: path is below /api. in is sent as
// JSON, and the answer is read into out; both may be nil.
func (c *Client) Do(ctx context.Context, method, path string, in, out any, header http.Header) error {
	raw, err := c.Get(ctx, method, path, in, header)
	if err != nil || out == nil || len(raw) == 0 {
		return err
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return fmt.Errorf("the answer of %s can't be read (%w); it may be of another version", c.base, err)
	}
	return nil
}

// Get is Do for an answer as it comes.
func (c *Client) Get(ctx context.Context, method, path string, in any, header http.Header) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, waits+patience)
	defer cancel()
	res, err := c.send(ctx, method, path, in, header)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("the answer of %s broke off (%w); try again", c.base, err)
	}
	return raw, nil
}

// send sends a request and returns an answer of success.
func (c *Client) send(ctx context.Context, method, path string, in any, header http.Header) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+"/api"+path, body) //nolint:gosec // the address is for whoever calls to say
	if err != nil {
		return nil, fmt.Errorf("%q is no address of a bot (%w)", c.base, err)
	}
	maps.Copy(req.Header, header)
	if req.URL.Host == "" {
		return nil, &Error{Sentence: fmt.Sprintf("%q is no address of a bot", c.base)}
	}
	if req.URL.Scheme != "https" && !loopback(req.URL.Hostname()) {
		return nil, &Error{Sentence: c.base + " isn't encrypted. Use the bot's https address"}
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.HTTP.Do(req) //nolint:gosec // as above
	if err != nil {
		return nil, fmt.Errorf("the bot at %s doesn't answer (%w); check that it runs and that this machine reaches it", c.base, err)
	}
	if res.StatusCode < http.StatusMultipleChoices {
		return res, nil
	}
	defer func() { _ = res.Body.Close() }()
	raw, _ := io.ReadAll(io.LimitReader(res.Body, 1<<20)) // what is there of a sentence
	var said struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(raw, &said) != nil || said.Error == "" {
		said.Error = fmt.Sprintf("%s answers with HTTP %d and is maybe no bot, or one of another version", c.base, res.StatusCode)
	}
	after, _ := strconv.Atoi(res.Header.Get("Retry-After"))
	return nil, &Error{res.StatusCode, said.Error, time.Duration(after) * time.Second}
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Request is what a program asks for: a command on a target, or a call of a tool.
type Request struct {
	// Key is the program's own name of the request, of at most 128 bytes. The same key again is the
	// same call: it runs once, and its result comes again. "" makes one.
	Key string `json:"key"`
	// Task names what the program is at. What it asks for one task is one conversation. "" begins one.
	Task string `json:"task,omitempty"`
	// Thread is a conversation of the web console that is there already, in place of a task's.
	Thread string `json:"thread,omitempty"`
	// Target is the machine, by its name in the bot's configuration, and Command is for its shell.
	Target  string `json:"target,omitempty"`
	Command string `json:"command,omitempty"`
	// Tool and Args call another tool, in place of a command. [Client.Tools] lists them.
	Tool string          `json:"tool,omitempty"`
	Args json.RawMessage `json:"args,omitempty"`
	Caller
}

// Caller is what a program says of itself. Cards show it beside the token's name, and rules can ask for more
// by it. What a program's own token says can't be said otherwise: see [Client.ProgramToken].
type Caller struct {
	Way        string `json:"way,omitempty"`        // WayAPI, WayMCP or WayHook; a token's is WayAPI without
	Program    string `json:"program,omitempty"`    // what it is called: "release-bot"
	Host       string `json:"host,omitempty"`       // the machine where it runs
	Repository string `json:"repository,omitempty"` // what it works in: "github.com/acme/shop"
	Ref        string `json:"ref,omitempty"`        // of that: "refs/heads/main"
}

// The ways in which programs ask.
const (
	WayAPI  = "api"
	WayMCP  = "mcp"
	WayHook = "hook" // it runs its own shell, and asks before it does
)

// State says how far a call is.
type State string

// The states. The zero State means that the bot has it and hasn't begun.
const (
	Waiting State = "waiting" // for people
	Running State = "running"
	Done    State = "done"
)

// Result is what became of a call.
type Result struct {
	ID      string `json:"id"`
	Thread  string `json:"thread"` // its conversation
	State   State  `json:"state"`
	Request string `json:"request,omitempty"` // that it waits for, or waited
	// ExitCode is the command's; nil if it was not run, or nobody knows how it ended.
	ExitCode *int   `json:"exit_code,omitempty"`
	Stdout   string `json:"stdout,omitempty"` // its beginning and its end, where Kept is not empty: [Call.Follow] has all of it
	Stderr   string `json:"stderr,omitempty"`
	Result   string `json:"result,omitempty"`  // of a tool
	Kept     string `json:"kept,omitempty"`    // the id of the whole output
	Failed   bool   `json:"failed,omitempty"`  // or it was not run
	Unknown  bool   `json:"unknown,omitempty"` // it began, and has no exit code
	Note     string `json:"note,omitempty"`    // why it was not run, or why it has no exit code
	// Allowed, Command and Digest answer a program that runs its own shell: it may run Command, whose
	// SHA-256 is Digest. What is stored of a command has no secrets.
	Allowed bool   `json:"allowed,omitempty"`
	Command string `json:"command,omitempty"`
	Digest  string `json:"digest,omitempty"`
	// Locked says that it may only where the kernel keeps it from changing anything, but for Needs
	// (countersign-lock).
	Locked bool     `json:"locked,omitempty"`
	Needs  []string `json:"needs,omitempty"`
}

// Call is one that the bot has.
type Call struct {
	c *Client
	// Begun is what was known of it when it began.
	Begun Result
}

// NewKey is a key that no other request has.
func NewKey() string { return "k-" + strings.ToLower(rand.Text()) }

// Start begins a call, which is durable then. It tries again while the bot is away for a moment, as
// when another replica takes over.
func (c *Client) Start(ctx context.Context, r Request) (*Call, error) {
	if r.Key == "" {
		r.Key = NewKey()
	}
	var out Result
	maybe := false
	err := c.patiently(ctx, func() error {
		err := c.Do(ctx, http.MethodPost, "/calls?wait=1", r, &out, nil)
		var no *Error
		var dial *net.OpError
		refused := errors.As(err, &no) && no.Status < http.StatusInternalServerError || errors.As(err, &dial) && dial.Op == "dial"
		maybe = maybe || err != nil && !refused
		return err
	})
	switch {
	case err == nil:
		return &Call{c, out}, nil
	case maybe:
		return nil, &UncertainError{r.Key, err}
	}
	return nil, err
}

// UncertainError says that a bot was lost before it answered, so that a call may have begun. The same request with
// Key tells what became of it.
type UncertainError struct {
	Key   string
	Cause error
}

// Error implements error.
func (e *UncertainError) Error() string {
	return fmt.Sprintf("it may have begun (%v); ask again with the key %s, which runs it once", e.Cause, e.Key)
}

// Unwrap returns the cause.
func (e *UncertainError) Unwrap() error { return e.Cause }

// patiently tries a request that changes nothing when it is repeated.
func (c *Client) patiently(ctx context.Context, try func() error) error {
	for heard := time.Now(); ; {
		err := try()
		var no *Error
		pause := again
		switch {
		case err == nil || ctx.Err() != nil:
			return err
		case time.Since(heard) > away:
			return err
		case errors.As(err, &no) && no.Status == http.StatusTooManyRequests:
			pause = min(max(no.After, again), away)
		case errors.As(err, &no) && no.Status < http.StatusInternalServerError:
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// Find returns the call of an id, such as that of a [Result].
func (c *Client) Find(id string) *Call { return &Call{c, Result{ID: id}} }

// Run begins a call and waits for its end.
func (c *Client) Run(ctx context.Context, r Request) (Result, error) {
	call, err := c.Start(ctx, r)
	if err != nil {
		return Result{}, err
	}
	return call.Wait(ctx, nil)
}

// Wait waits for the end of the call. told hears of each state on the way; it may be nil. If ctx ends
// before, the call goes on: see [Call.Withdraw].
func (k *Call) Wait(ctx context.Context, told func(Result)) (Result, error) {
	for now := k.Begun; ; {
		if now.State == Done {
			return now, nil
		}
		if told != nil {
			told(now)
		}
		path := "/calls/" + url.PathEscape(k.Begun.ID) + "?" + url.Values{"seen": {string(now.State)}, "wait": {strconv.Itoa(int(waits.Seconds()))}}.Encode()
		var next Result
		if err := k.c.patiently(ctx, func() error { return k.c.Do(ctx, http.MethodGet, path, nil, &next, nil) }); err != nil {
			return now, err
		}
		now = next
	}
}

// Withdraw takes back what waits, and stops what runs.
func (k *Call) Withdraw(ctx context.Context) error {
	return k.c.patiently(ctx, func() error {
		return k.c.Do(ctx, http.MethodPost, "/calls/"+url.PathEscape(k.Begun.ID)+"/withdraw", struct{}{}, nil, nil)
	})
}

// Output is a piece of what a command prints: any bytes.
type Output struct {
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	End    bool   `json:"end"` // the pieces before are all of it
}

// Follow passes on what the command prints while it runs, or has printed, from its beginning and byte for byte, but
// for secrets. whole says that this was all of it; otherwise the rest wasn't kept, or the connection broke off.
func (k *Call) Follow(ctx context.Context, pass func(Output)) (whole bool, err error) {
	res, err := k.c.send(ctx, http.MethodGet, "/calls/"+url.PathEscape(k.Begun.ID)+"/output", nil, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = res.Body.Close() }()
	for d := json.NewDecoder(res.Body); ; {
		var p struct {
			Output
			StdoutBytes []byte `json:"stdout_bytes"` // in place of text that JSON can't have
			StderrBytes []byte `json:"stderr_bytes"`
		}
		switch err := d.Decode(&p); {
		case errors.Is(err, io.EOF):
			return whole, nil
		case err != nil:
			return false, err
		}
		if whole = p.End; !whole {
			p.Stdout += string(p.StdoutBytes)
			p.Stderr += string(p.StderrBytes)
			pass(p.Output)
		}
	}
}

// Token is one of a bot.
type Token struct {
	ID      string    `json:"id"` // to end it by
	Token   string    `json:"token"`
	Expires time.Time `json:"expires"`
}

// ProgramToken makes a token for one program, such as an agent on this machine: it can only ask, always in
// the program's name, makes no tokens, and ends with the client's. It sends POST /api/tokens
// {"scope":"ask","program":NAME}; add "days" for a shorter life. The client's own token must be one of scope
// ask or full that isn't a program's.
func (c *Client) ProgramToken(ctx context.Context, program string) (t Token, err error) {
	return t, c.Do(ctx, http.MethodPost, "/tokens", map[string]string{"scope": "ask", "program": program}, &t, nil)
}

// Open lists your calls that have not ended.
func (c *Client) Open(ctx context.Context) ([]Result, error) {
	var out struct {
		Calls []Result `json:"calls"`
	}
	return out.Calls, c.Do(ctx, http.MethodGet, "/calls", nil, &out, nil)
}

// Recent lists your calls that have not ended, and those that have and began within the last hour: an answer that
// a connection lost is still there.
func (c *Client) Recent(ctx context.Context) ([]Result, error) {
	var out struct {
		Calls []Result `json:"calls"`
	}
	return out.Calls, c.Do(ctx, http.MethodGet, "/calls?ended=1", nil, &out, nil)
}

// Target is a machine.
type Target struct {
	Name  string `json:"name"`
	Kind  string `json:"kind"`
	State string `json:"state"` // whether the bot has reached it, for people
}

// Targets lists the machines that you may use.
func (c *Client) Targets(ctx context.Context) ([]Target, error) {
	var list struct {
		Rows []struct {
			Cells []struct {
				Text string `json:"text"`
			} `json:"cells"`
		} `json:"rows"`
	}
	if err := c.Do(ctx, http.MethodGet, "/lists/targets?all=1", nil, &list, nil); err != nil {
		return nil, err
	}
	var out []Target
	for _, r := range list.Rows {
		if len(r.Cells) > 2 {
			out = append(out, Target{r.Cells[0].Text, r.Cells[1].Text, r.Cells[2].Text})
		}
	}
	return out, nil
}

// Tool is one that [Request] can name.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"` // of its arguments: JSON Schema
}

// Tools lists the tools that programs may call.
func (c *Client) Tools(ctx context.Context) ([]Tool, error) {
	var out struct {
		Tools []Tool `json:"tools"`
	}
	return out.Tools, c.Do(ctx, http.MethodGet, "/tools", nil, &out, nil)
}
