package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// maxPages and maxTools bound the list of one server.
	maxPages = 50
	maxTools = 500
	// oldProtocol is the newest version of the protocol that begins with a handshake
	// (2026-07-28 and later begin with a question that some older servers never answer).
	oldProtocol = "2025-11-25"
)

// link is one connection to a server, from its beginning to its end.
type link struct {
	session *sdk.ClientSession
	closer  io.Closer // the process, or the way over HTTP
	life    context.Context
	end     context.CancelCauseFunc
	gone    chan struct{} // closed when the connection has ended, after err is set
	err     error
	changed chan struct{} // holds one value when the server says that its tools changed

	seq      atomic.Int64
	mu       sync.Mutex
	progress map[string]func(*sdk.ProgressNotificationParams)
}

// dial opens the way to a server and begins a session. ctx bounds the beginning only.
func (s *server) dial(ctx context.Context, old bool) (*link, error) {
	var (
		closer io.Closer
		way    sdk.Transport
	)
	if s.url != nil {
		r := newRemote(ctx, s.url, s.cfg.Headers, s.cfg.Loopback, s.host.pace.stream)
		closer, way = r, r.transport()
	} else {
		p, err := start(ctx, s.argv, environ(s.cfg.Env, s.dir, s.host.lookup), s.dir, s.log)
		if err != nil {
			return nil, err
		}
		closer, way = p, p.transport()
	}
	l := &link{closer: closer, gone: make(chan struct{}), changed: make(chan struct{}, 1), progress: map[string]func(*sdk.ProgressNotificationParams){}}
	l.life, l.end = context.WithCancelCause(context.WithoutCancel(ctx))
	client := sdk.NewClient(&sdk.Implementation{Name: "countersign", Version: "1"}, &sdk.ClientOptions{
		Capabilities:   &sdk.ClientCapabilities{}, // not even roots
		MultiRoundTrip: &sdk.MultiRoundTripOptions{Disabled: true},
		// What the SDK logs may hold the address and whatever the server wrote.
		Logger: slog.New(slog.DiscardHandler),
		ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) {
			select {
			case l.changed <- struct{}{}:
			default:
			}
		},
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) { l.progressed(r.Params) },
	})
	client.AddReceivingMiddleware(decline)
	var opts *sdk.ClientSessionOptions
	if old {
		opts = &sdk.ClientSessionOptions{ProtocolVersion: oldProtocol}
	}
	session, err := client.Connect(ctx, way, opts)
	if err != nil {
		l.end(errClosed)
		_ = closer.Close() // the SDK does not close it on every way out
		if ctx.Err() != nil {
			err = fmt.Errorf("it did not answer in time: %w", ctx.Err())
		}
		return nil, err
	}
	l.session = session
	go func() {
		defer close(l.gone)
		l.err = session.Wait()
		if l.err == nil {
			l.err = io.EOF
		}
	}()
	return l, nil
}

// decline answers what a server asks of people or of the model: nothing.
func decline(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		switch method {
		case "elicitation/create":
			return &sdk.ElicitResult{Action: "decline"}, nil
		case "sampling/createMessage", "roots/list":
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "this client does not do that"}
		}
		return next(ctx, method, req)
	}
}

// close ends the connection and every call on it.
func (l *link) close() {
	select {
	case <-l.gone: // every call has its own end already, which may say more
	default:
		l.end(errClosed)
	}
	_ = l.session.Close()
	_ = l.closer.Close()
	<-l.gone
}

// list asks for all tools.
func (l *link) list(ctx context.Context) ([]*sdk.Tool, error) {
	ctx, cancel := l.bound(ctx)
	defer cancel()
	var out []*sdk.Tool
	params := &sdk.ListToolsParams{}
	for range maxPages {
		r, err := l.session.ListTools(ctx, params)
		if err != nil {
			return nil, fmt.Errorf("it did not list its tools: %w", err)
		}
		if out = append(out, r.Tools...); len(out) > maxTools {
			return nil, fmt.Errorf("it lists more than %d tools", maxTools)
		}
		if r.NextCursor == "" {
			return out, nil
		}
		params = &sdk.ListToolsParams{Cursor: r.NextCursor}
	}
	return nil, fmt.Errorf("its list of tools has more than %d pages", maxPages)
}

// bound returns ctx, which also ends with the connection.
func (l *link) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.life, func() { cancel(context.Cause(l.life)) })
	return ctx, func() { stop(); cancel(nil) }
}

// call calls a tool. progress gets what the server says meanwhile, from one goroutine
// at a time and never after call has returned.
func (l *link) call(ctx context.Context, tool string, args json.RawMessage, progress func(*sdk.ProgressNotificationParams)) (*sdk.CallToolResult, error) {
	ctx, cancel := l.bound(ctx)
	defer cancel() // also ends a stream that goes on after the answer
	token := "call-" + strconv.FormatInt(l.seq.Add(1), 10)
	l.mu.Lock()
	l.progress[token] = progress
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.progress, token)
		l.mu.Unlock()
	}()
	params := &sdk.CallToolParams{Name: tool, Arguments: args}
	params.SetProgressToken(token)
	r, err := l.session.CallTool(ctx, params)
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
	}
	return r, err
}

func (l *link) progressed(p *sdk.ProgressNotificationParams) {
	token, ok := p.ProgressToken.(string)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock() // held for the call, so that none comes after its end
	if f := l.progress[token]; f != nil {
		f(p)
	}
}

// The codes with which the SDK tells that it got no answer (internal/jsonrpc2/wire.go
// of go-sdk v1.8.0: unknown, client closing, server closing, rejected by transport).
var unanswered = []int64{-32001, -32003, -32004, -32005}

// answered reports whether err is the server's own answer to the call, so that it is
// known to be over.
func answered(err error) bool {
	e, ok := errors.AsType[*jsonrpc.Error](err)
	return ok && !slices.Contains(unanswered, e.Code)
}
