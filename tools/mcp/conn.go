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
	// maxPages and maxTools bound a server's list of tools.
	maxPages = 50
	maxTools = 500
	// oldProtocol is the newest protocol version that begins with a handshake. Since 2026-07-28 the
	// protocol begins with a request that some older servers never answer.
	oldProtocol = "2025-11-25"
)

// connection is one connection to a server, from its start to its end.
type connection struct {
	session *sdk.ClientSession
	closer  io.Closer // the process, or the HTTP client
	life    context.Context
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed when the connection has ended and err is set
	err     error
	changed chan struct{} // holds one value after the server announced changed tools

	seq      atomic.Int64
	mu       sync.Mutex
	progress map[string]func(*sdk.ProgressNotificationParams)
}

// dial connects to a server and starts a session. ctx bounds only the start.
func (s *server) dial(ctx context.Context, old bool) (*connection, error) {
	var (
		closer io.Closer
		way    sdk.Transport
	)
	if s.url != nil {
		r := newRemote(ctx, s.url, s.headers, s.cfg.Loopback, s.host.timing.stream)
		closer, way = r, r.transport()
	} else {
		p, err := start(ctx, s.argv, environ(s.cfg.Env, s.dir, s.host.lookup), s.dir, s.log)
		if err != nil {
			return nil, err
		}
		closer, way = p, p.transport()
	}
	l := &connection{closer: closer, done: make(chan struct{}), changed: make(chan struct{}, 1), progress: map[string]func(*sdk.ProgressNotificationParams){}}
	l.life, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	client := sdk.NewClient(&sdk.Implementation{Name: "countersign", Version: "1"}, &sdk.ClientOptions{
		Capabilities:   &sdk.ClientCapabilities{}, // not even roots
		MultiRoundTrip: &sdk.MultiRoundTripOptions{Disabled: true},
		// The SDK's logs may contain the address and the server's text.
		Logger: slog.New(slog.DiscardHandler),
		ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) {
			select {
			case l.changed <- struct{}{}:
			default:
			}
		},
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) { l.handleProgress(r.Params) },
	})
	client.AddReceivingMiddleware(rejectServerRequests)
	var opts *sdk.ClientSessionOptions
	if old {
		opts = &sdk.ClientSessionOptions{ProtocolVersion: oldProtocol}
	}
	session, err := client.Connect(ctx, way, opts)
	if err != nil {
		l.cancel(errClosed)
		_ = closer.Close() // the SDK does not close it on every error
		if ctx.Err() != nil {
			err = fmt.Errorf("it did not answer in time: %w", ctx.Err())
		}
		return nil, err
	}
	l.session = session
	go func() {
		defer close(l.done)
		l.err = session.Wait()
		if l.err == nil {
			l.err = io.EOF
		}
	}()
	return l, nil
}

// rejectServerRequests refuses everything that a server requests from people or the model.
func rejectServerRequests(next sdk.MethodHandler) sdk.MethodHandler {
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

// close ends the connection and all its calls.
func (l *connection) close() {
	select {
	case <-l.done: // calls already have a more specific error
	default:
		l.cancel(errClosed)
	}
	_ = l.session.Close()
	_ = l.closer.Close()
	<-l.done
}

// list requests all tools.
func (l *connection) list(ctx context.Context) ([]*sdk.Tool, error) {
	ctx, cancel := l.withConnection(ctx)
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

// withConnection returns a ctx that is also canceled when the connection ends.
func (l *connection) withConnection(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.life, func() { cancel(context.Cause(l.life)) })
	return ctx, func() { stop(); cancel(nil) }
}

// call calls a tool. progress receives the server's progress notifications, one at a time, and is
// never called after call has returned.
func (l *connection) call(ctx context.Context, tool string, args json.RawMessage, progress func(*sdk.ProgressNotificationParams)) (*sdk.CallToolResult, error) {
	ctx, cancel := l.withConnection(ctx)
	defer cancel() // also ends a stream that continues after the answer
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

func (l *connection) handleProgress(p *sdk.ProgressNotificationParams) {
	token, ok := p.ProgressToken.(string)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock() // held during the call, so that none comes after call returned
	if f := l.progress[token]; f != nil {
		f(p)
	}
}

// The error codes with which the SDK reports that there was no answer (internal/jsonrpc2/wire.go of
// go-sdk v1.8.0: unknown, client closing, server closing, rejected by transport).
var noAnswerCodes = []int64{-32001, -32003, -32004, -32005}

// isServerAnswer reports whether err is the server's own answer, so that the call is known to be
// finished.
func isServerAnswer(err error) bool {
	e, ok := errors.AsType[*jsonrpc.Error](err)
	return ok && !slices.Contains(noAnswerCodes, e.Code)
}
