package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bwmarrin/discordgo"
)

// api is a Discord in a function.
type api struct {
	mu    sync.Mutex
	calls []apiCall
	serve func(n int, r *http.Request, body []byte) (*http.Response, error)
}

type apiCall struct {
	at           time.Time
	method, path string
	auth         string
	body         string
}

func (a *api) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		_ = r.Body.Close()
	}
	a.mu.Lock()
	a.calls = append(a.calls, apiCall{time.Now(), r.Method, r.URL.Path, r.Header.Get("Authorization"), string(body)})
	n := len(a.calls)
	a.mu.Unlock()
	return a.serve(n, r, body)
}

func (a *api) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.calls)
}

func answer(status int, body string, head ...string) (*http.Response, error) {
	h := http.Header{}
	for i := 0; i+1 < len(head); i += 2 {
		h.Set(head[i], head[i+1])
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body))}, nil
}

const posted = `{"id":"1","channel_id":"10"}`

// rest runs do in a bubble.
func rest(t *testing.T, serve func(n int, r *http.Request, body []byte) (*http.Response, error), do func(t *testing.T, r *REST, a *api)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a := &api{serve: serve}
		r, err := NewREST(RESTConfig{Token: "tok-en", Transport: a})
		if err != nil {
			t.Fatal(err)
		}
		do(t, r, a)
	})
}

func hello(key string) Outgoing {
	return Outgoing{Body: map[string]any{"content": "hello"}, Key: key}
}

func TestLimitsThatDiscordReports(t *testing.T) {
	limit := func(body string, head ...string) func(int, *http.Request, []byte) (*http.Response, error) {
		return func(n int, _ *http.Request, _ []byte) (*http.Response, error) {
			if n == 1 {
				return answer(429, body, head...)
			}
			return answer(200, posted)
		}
	}
	for _, tc := range []struct {
		name    string
		serve   func(int, *http.Request, []byte) (*http.Response, error)
		wait    time.Duration
		counted bool
		others  bool // other channels wait too
	}{
		{"of the user", limit(`{"message":"m","retry_after":1.5,"global":false}`, "X-RateLimit-Scope", "user", "Retry-After", "2"), 2 * time.Second, true, false},
		{"shared", limit(`{"message":"m","retry_after":3.25,"global":false}`, "X-RateLimit-Scope", "shared"), 3250 * time.Millisecond, false, false},
		{"global", limit(`{"message":"m","retry_after":4,"global":true}`, "X-RateLimit-Scope", "global", "X-RateLimit-Global", "true"), 4 * time.Second, true, true},
		{"of the edge, in HTML", limit(`<html>Access denied</html>`, "Retry-After", "7"), 7 * time.Second, true, true},
		{"of the edge, without a time", limit(`<html>`), edgeHold, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rest(t, tc.serve, func(t *testing.T, r *REST, a *api) {
				began := time.Now()
				var wg sync.WaitGroup
				wg.Go(func() {
					if s, err := r.Post(t.Context(), "10", hello("")); err != nil || s.ID != "1" {
						t.Errorf("%+v, %v", s, err)
					}
				})
				synctest.Wait()
				if err := r.Typing(t.Context(), "11"); err != nil {
					t.Error(err)
				}
				if other := time.Since(began); tc.others != (other >= tc.wait) {
					t.Errorf("another channel waited for %s", other)
				}
				wg.Wait()
				if got := time.Since(began); got < tc.wait || got > tc.wait+100*time.Millisecond {
					t.Errorf("waited for %s, want %s", got, tc.wait)
				}
				if n := a.count(); n != 3 {
					t.Errorf("%d calls", n)
				}
				n := 0
				for _, c := range r.guard.counts {
					n += c
				}
				if (n == 1) != tc.counted {
					t.Errorf("counted %d refused calls", n)
				}
			})
		})
	}
	always := func(int, *http.Request, []byte) (*http.Response, error) {
		return answer(429, `{"retry_after":1}`)
	}
	t.Run("a limit without end is given up", func(t *testing.T) {
		rest(t, always, func(t *testing.T, r *REST, a *api) {
			_, err := r.Post(t.Context(), "10", hello(""))
			l, ok := errors.AsType[*RateLimitedError](err)
			if !ok || l.After != time.Second || l.Scope != ScopeUser || a.count() != maxTries {
				t.Errorf("%v after %d calls", err, a.count())
			}
		})
	})
	t.Run("a limit longer than the caller waits is told at once", func(t *testing.T) {
		rest(t, func(int, *http.Request, []byte) (*http.Response, error) { return answer(429, `{"retry_after":60}`) }, func(t *testing.T, r *REST, a *api) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			began := time.Now()
			for range 2 { // the second is not even sent
				_, err := r.Post(ctx, "10", hello(""))
				l, ok := errors.AsType[*RateLimitedError](err)
				if !ok || l.After != time.Minute || time.Since(began) != 0 {
					t.Errorf("%v after %s", err, time.Since(began))
				}
			}
			if a.count() != 1 {
				t.Errorf("%d calls", a.count())
			}
		})
	})
	t.Run("a call that hardly waits for limits has its time on the way", func(t *testing.T) {
		slow := func(_ int, r *http.Request, _ []byte) (*http.Response, error) {
			select {
			case <-time.After(5 * time.Second):
				return answer(200, posted)
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		}
		rest(t, slow, func(t *testing.T, r *REST, _ *api) {
			if s, err := r.Post(WaitAtMost(t.Context(), 2*time.Second), "10", hello("")); err != nil || s.ID != "1" {
				t.Errorf("%+v, %v", s, err)
			}
		})
		rest(t, func(int, *http.Request, []byte) (*http.Response, error) { return answer(429, `{"retry_after":3}`) }, func(t *testing.T, r *REST, a *api) {
			began := time.Now()
			for range 2 { // the second is not even sent
				if _, err := r.Post(WaitAtMost(t.Context(), 2*time.Second), "10", hello("")); !errors.As(err, new(*RateLimitedError)) || time.Since(began) != 0 {
					t.Errorf("%v after %s", err, time.Since(began))
				}
			}
			if a.count() != 1 {
				t.Errorf("%d calls", a.count())
			}
		})
	})
	t.Run("the context ends every wait", func(t *testing.T) {
		rest(t, func(int, *http.Request, []byte) (*http.Response, error) { return answer(429, `{"retry_after":60}`) }, func(t *testing.T, r *REST, _ *api) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 2)
			go func() { _, err := r.Post(ctx, "10", hello("")); done <- err }()
			synctest.Wait()
			go func() { _, err := r.Post(ctx, "10", hello("")); done <- err }() // waits for the bucket
			synctest.Wait()
			began := time.Now()
			cancel()
			for range 2 {
				if err := <-done; err == nil {
					t.Error("no error")
				}
			}
			if time.Since(began) != 0 {
				t.Errorf("took %s", time.Since(began))
			}
		})
	})
}

func TestBuckets(t *testing.T) {
	t.Run("a bucket that is spent is waited for, and routes of one name share it", func(t *testing.T) {
		left := 2
		rest(t, func(int, *http.Request, []byte) (*http.Response, error) {
			left--
			return answer(200, posted, "X-RateLimit-Bucket", "abc", "X-RateLimit-Remaining", fmt.Sprint(max(left, 0)), "X-RateLimit-Reset-After", "2.5")
		}, func(t *testing.T, r *REST, a *api) {
			if _, err := r.Post(t.Context(), "10", hello("")); err != nil {
				t.Fatal(err)
			}
			if err := r.Delete(t.Context(), "10", "1"); err != nil { // says that the two share a bucket, which is spent
				t.Fatal(err)
			}
			began := time.Now()
			if err := r.Typing(t.Context(), "11"); err != nil || time.Since(began) != 0 {
				t.Errorf("another channel: %v after %s", err, time.Since(began))
			}
			if _, err := r.Post(t.Context(), "10", hello("")); err != nil || time.Since(began) != 2500*time.Millisecond+resetMargin {
				t.Errorf("the same bucket: %v after %s", err, time.Since(began))
			}
			_ = a
		})
	})
	t.Run("the posts of a channel keep their order, and no two are under way", func(t *testing.T) {
		under := 0
		var mu sync.Mutex
		rest(t, func(n int, _ *http.Request, _ []byte) (*http.Response, error) {
			mu.Lock()
			if under++; under > 1 {
				t.Error("two calls at once")
			}
			mu.Unlock()
			time.Sleep(100 * time.Millisecond)
			mu.Lock()
			under--
			mu.Unlock()
			return answer(200, posted, "X-RateLimit-Bucket", "abc", "X-RateLimit-Remaining", fmt.Sprint(5-n%5), "X-RateLimit-Reset-After", "1")
		}, func(t *testing.T, r *REST, a *api) {
			var wg sync.WaitGroup
			for i := range 50 {
				wg.Go(func() {
					if _, err := r.Post(t.Context(), "10", Outgoing{Body: map[string]any{"content": fmt.Sprint(i)}}); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
			}
			wg.Wait()
			for i, c := range a.calls {
				if !strings.Contains(c.body, fmt.Sprintf(`"content":"%d"`, i)) {
					t.Fatalf("call %d is %s", i, c.body)
				}
			}
		})
	})
	t.Run("calls are spread over each second", func(t *testing.T) {
		rest(t, func(int, *http.Request, []byte) (*http.Response, error) { return answer(204, "") }, func(t *testing.T, r *REST, a *api) {
			var wg sync.WaitGroup
			for i := range 220 {
				wg.Go(func() {
					if err := r.Typing(t.Context(), fmt.Sprint(i)); err != nil {
						t.Error(err)
					}
				})
			}
			synctest.Wait()
			if err := r.Respond(t.Context(), &discordgo.Interaction{ID: "1", Token: "t"}, ReplyDeferredEdit, Outgoing{}); err != nil {
				t.Error(err)
			}
			if n := a.count(); n != CallBurst+2 {
				t.Errorf("%d calls at once; the interaction's is not to wait", n)
			}
			wg.Wait()
			var at []time.Time
			for _, c := range a.calls {
				if strings.HasSuffix(c.path, "/typing") {
					at = append(at, c.at)
				}
			}
			slices.SortFunc(at, time.Time.Compare)
			wantSpread(t, at)
			if took := at[len(at)-1].Sub(at[0]); took > 5500*time.Millisecond {
				t.Errorf("took %s", took)
			}
		})
	})
	t.Run("after a global limit nothing comes in bunches, also of what waited", func(t *testing.T) {
		var limited atomic.Bool
		rest(t, func(n int, _ *http.Request, _ []byte) (*http.Response, error) {
			if n == 20 && !limited.Swap(true) {
				return answer(429, `{"retry_after":1,"global":true}`, "X-RateLimit-Scope", "global", "X-RateLimit-Global", "true")
			}
			return answer(204, "")
		}, func(t *testing.T, r *REST, a *api) {
			var wg sync.WaitGroup
			for i := range 120 {
				wg.Go(func() {
					if err := r.Typing(t.Context(), fmt.Sprint(i)); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			var at []time.Time
			for _, c := range a.calls {
				at = append(at, c.at)
			}
			slices.SortFunc(at, time.Time.Compare)
			wantSpread(t, at)
			if gap := at[20].Sub(at[19]); gap < time.Second {
				t.Errorf("the next call came after %s", gap)
			}
			for i := 21; i < len(at); i++ {
				if gap := at[i].Sub(at[i-1]); gap < CallEvery {
					t.Errorf("call %d came after %s", i, gap)
				}
			}
		})
	})
	t.Run("what is kept does not grow", func(t *testing.T) {
		rest(t, func(int, *http.Request, []byte) (*http.Response, error) {
			return answer(200, posted, "X-RateLimit-Bucket", "abc", "X-RateLimit-Remaining", "1", "X-RateLimit-Reset-After", "1")
		}, func(t *testing.T, r *REST, _ *api) {
			for i := range 10_000 {
				if err := r.Respond(t.Context(), &discordgo.Interaction{ID: fmt.Sprint(i), Token: fmt.Sprint(i)}, ReplyDeferredEdit, Outgoing{}); err != nil {
					t.Fatal(err)
				}
			}
			if len(r.buckets.all) != 0 {
				t.Errorf("%d buckets after interactions", len(r.buckets.all))
			}
			for i := range 3000 {
				if _, err := r.Post(t.Context(), fmt.Sprint(i), hello("")); err != nil {
					t.Fatal(err)
				}
			}
			if n := len(r.buckets.all); n > maxBuckets+1 {
				t.Errorf("%d buckets after channels", n)
			}
		})
	})
}

// wantSpread checks that in no second there are as many calls as Discord counts.
func wantSpread(t *testing.T, at []time.Time) {
	t.Helper()
	const most = 49
	for i := most; i < len(at); i++ {
		if at[i].Sub(at[i-most]) < time.Second {
			t.Fatalf("calls %d to %d within %s", i-most, i, at[i].Sub(at[i-most]))
		}
	}
}

func TestRefusedCalls(t *testing.T) {
	t.Run("after a 401 nothing is called for five minutes", func(t *testing.T) {
		broken := true
		rest(t, func(_ int, r *http.Request, _ []byte) (*http.Response, error) {
			if broken && r.Header.Get("Authorization") != "" {
				return answer(401, `{"message":"401: Unauthorized","code":0}`)
			}
			return answer(200, posted)
		}, func(t *testing.T, r *REST, a *api) {
			for range 100 {
				if _, err := r.Post(t.Context(), "10", hello("k")); !errors.Is(err, ErrUnauthorized) {
					t.Fatal(err)
				}
			}
			if err := r.Respond(t.Context(), &discordgo.Interaction{ID: "1", Token: "t"}, ReplyDeferredEdit, Outgoing{}); err != nil {
				t.Errorf("an interaction has a token of its own: %v", err)
			}
			if n := a.count(); n != 2 {
				t.Errorf("%d calls", n)
			}
			time.Sleep(unauthorizedFor)
			for range 10 {
				if err := r.Typing(t.Context(), "10"); !errors.Is(err, ErrUnauthorized) {
					t.Fatal(err)
				}
			}
			if n := a.count(); n != 3 {
				t.Errorf("%d calls", n)
			}
			broken = false
			time.Sleep(unauthorizedFor)
			for range 3 {
				if err := r.Typing(t.Context(), "10"); err != nil {
					t.Fatal(err)
				}
			}
		})
	})
	t.Run("the old token of an interaction says nothing of the bot's", func(t *testing.T) {
		rest(t, func(_ int, r *http.Request, _ []byte) (*http.Response, error) {
			if strings.Contains(r.URL.Path, "/webhooks/") {
				return answer(401, `{"message":"Invalid Webhook Token","code":50027}`)
			}
			return answer(200, posted)
		}, func(t *testing.T, r *REST, _ *api) {
			_, err := r.FollowUp(t.Context(), &discordgo.Interaction{AppID: "1", Token: "secret-of-one"}, hello(""))
			if err == nil || errors.Is(err, ErrUnauthorized) || strings.Contains(err.Error(), "secret-of-one") {
				t.Error(err)
			}
			if err := r.Typing(t.Context(), "10"); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("nine thousand refused calls in ten minutes are the last", func(t *testing.T) {
		rest(t, func(int, *http.Request, []byte) (*http.Response, error) {
			return answer(403, `{"message":"Missing Permissions","code":50013}`)
		}, func(t *testing.T, r *REST, a *api) {
			for i := range maxInvalid {
				if err := r.Typing(t.Context(), fmt.Sprint(i%7)); !errors.Is(err, ErrForbidden) {
					t.Fatalf("call %d: %v", i, err)
				}
			}
			err := r.Typing(t.Context(), "1")
			l, ok := errors.AsType[*RateLimitedError](err)
			if !ok || l.Scope != ScopeGuard || l.After <= 0 || l.After > invalidWindow {
				t.Fatal(err)
			}
			if err := r.Respond(t.Context(), &discordgo.Interaction{ID: "1", Token: "t"}, ReplyDeferredEdit, Outgoing{}); err == nil {
				t.Error("the address is the same for interactions")
			}
			if a.count() != maxInvalid {
				t.Errorf("%d calls", a.count())
			}
			time.Sleep(l.After)
			if err := r.Typing(t.Context(), "1"); !errors.Is(err, ErrForbidden) {
				t.Errorf("after the wait: %v", err)
			}
		})
	})
}

func TestErrors(t *testing.T) {
	for _, tc := range []struct {
		status int
		body   string
		is     error
		not    error
		code   int
		text   string
	}{
		{404, `{"message":"Unknown Channel","code":10003}`, ErrGone, ErrRejected, CodeUnknownChannel, "discord refused POST /channels/{channel}/messages: Unknown Channel (HTTP 404, code 10003)"},
		{403, `{"message":"Missing Access","code":50001}`, ErrForbidden, ErrRejected, CodeMissingAccess, "Missing Access"},
		{400, `{"message":"Thread is archived","code":50083}`, ErrRejected, ErrGone, CodeArchived, "archived"},
		{400, `{"code":50035,"message":"Invalid Form Body","errors":{"embeds":{"0":{"title":{"_errors":[{"code":"BASE_TYPE_MAX_LENGTH","message":"Must be 256 or fewer in length."}]}}}}}`, ErrRejected, ErrGone, CodeInvalidForm, "embeds.0.title: Must be 256 or fewer in length."},
		{413, `too large`, ErrRejected, ErrGone, 0, "Request Entity Too Large"},
		{302, ``, nil, ErrGone, 0, "Found"},
	} {
		t.Run(fmt.Sprint(tc.status, tc.code), func(t *testing.T) {
			rest(t, func(int, *http.Request, []byte) (*http.Response, error) {
				return answer(tc.status, tc.body, "Location", "https://elsewhere.test/")
			}, func(t *testing.T, r *REST, a *api) {
				_, err := r.Post(t.Context(), "10", hello("k"))
				if tc.is != nil && !errors.Is(err, tc.is) || errors.Is(err, tc.not) || Code(err) != tc.code || !strings.Contains(err.Error(), tc.text) || a.count() != 1 {
					t.Errorf("%v after %d calls", err, a.count())
				}
			})
		})
	}
}

func TestLostAnswers(t *testing.T) {
	for _, tc := range []struct {
		name  string
		do    func(ctx context.Context, r *REST) error
		calls int
	}{
		{"a post with a key is sent again", func(ctx context.Context, r *REST) error { _, err := r.Post(ctx, "10", hello("k")); return err }, maxTries},
		{"a post without one is not", func(ctx context.Context, r *REST) error { _, err := r.Post(ctx, "10", hello("")); return err }, 1},
		{"an edit is sent again", func(ctx context.Context, r *REST) error { _, err := r.Edit(ctx, "10", "1", hello("")); return err }, maxTries},
		{"a question is asked again", func(ctx context.Context, r *REST) error { _, err := r.Channel(ctx, "10"); return err }, maxTries},
		{"the answer to an interaction is not", func(ctx context.Context, r *REST) error {
			return r.Respond(ctx, &discordgo.Interaction{ID: "1", Token: "secret-of-one"}, ReplyUpdate, hello(""))
		}, 1},
	} {
		for status, why := range map[int]string{0: "connection reset", 502: "Bad Gateway"} {
			t.Run(tc.name+", "+why, func(t *testing.T) {
				rest(t, func(int, *http.Request, []byte) (*http.Response, error) {
					if status == 0 {
						return nil, errors.New("connection reset")
					}
					return answer(status, "<html>")
				}, func(t *testing.T, r *REST, a *api) {
					err := tc.do(t.Context(), r)
					if err == nil || a.count() != tc.calls || !strings.Contains(err.Error(), why) {
						t.Errorf("%v after %d calls", err, a.count())
					}
					if err != nil && (strings.Contains(err.Error(), "secret-of-one") || strings.Contains(err.Error(), "tok-en")) {
						t.Errorf("a token in %v", err)
					}
					for _, c := range a.calls {
						if c.body != a.calls[0].body {
							t.Error("the second is not the first again")
						}
					}
				})
			})
		}
	}
	t.Run("an answer that does not come ends with the deadline", func(t *testing.T) {
		rest(t, func(_ int, r *http.Request, _ []byte) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}, func(t *testing.T, r *REST, _ *api) {
			began := time.Now()
			err := r.Respond(t.Context(), &discordgo.Interaction{ID: "1", Token: "t"}, ReplyUpdate, hello(""))
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != interactionTimeout {
				t.Errorf("%v after %s", err, time.Since(began))
			}
		})
	})
}

// Whatever a body says, only people who are listed one by one are mentioned.
func TestOnlyListedPeopleAreMentioned(t *testing.T) {
	for in, want := range map[string]string{
		`{"parse":["everyone","users","roles"],"roles":["123456789012345678"],"replied_user":true}`: `{"parse":[]}`,
		`{"parse":["users"],"users":["123456789012345678","x","<@&1>"]}`:                            `{"parse":[],"users":["123456789012345678"]}`,
		`"everyone"`: `{"parse":[]}`,
		``:           `{"parse":[]}`,
	} {
		if got, _ := json.Marshal(listed(json.RawMessage(in))); string(got) != want {
			t.Errorf("%s: %s", in, got)
		}
	}
}

func TestWhatGoesOut(t *testing.T) {
	rest(t, func(int, *http.Request, []byte) (*http.Response, error) { return answer(200, posted) }, func(t *testing.T, r *REST, a *api) {
		evil := map[string]any{"content": "hi", "allowed_mentions": map[string]any{"parse": []string{"everyone"}}, "nonce": "mine"}
		i := &discordgo.Interaction{ID: "1", AppID: "2", Token: "t"}
		ctx := t.Context()
		for name, do := range map[string]func() error{
			"post": func() error {
				_, err := r.Post(ctx, "10", Outgoing{Body: evil, Key: "a key that is much longer than what Discord takes"})
				return err
			},
			"edit":      func() error { _, err := r.Edit(ctx, "10", "1", Outgoing{Body: evil}); return err },
			"respond":   func() error { return r.Respond(ctx, i, ReplyMessage, Outgoing{Body: evil}) },
			"update":    func() error { return r.Respond(ctx, i, ReplyUpdate, Outgoing{Body: evil}) },
			"follow-up": func() error { _, err := r.FollowUp(ctx, i, Outgoing{Body: evil}); return err },
			"original":  func() error { _, err := r.EditResponse(ctx, i, Outgoing{Body: evil}); return err },
		} {
			if err := do(); err != nil {
				t.Error(name, err)
			}
			last := a.calls[len(a.calls)-1]
			var m map[string]any
			if err := json.Unmarshal([]byte(last.body), &m); err != nil {
				t.Fatal(name, err)
			}
			if d, ok := m["data"].(map[string]any); ok {
				m = d
			}
			if got, _ := json.Marshal(m["allowed_mentions"]); string(got) != `{"parse":[]}` {
				t.Errorf("%s: allowed_mentions %s", name, got)
			}
			if name == "post" && (m["enforce_nonce"] != true || m["nonce"] != Nonce("a key that is much longer than what Discord takes") || len(m["nonce"].(string)) != 25) {
				t.Errorf("%s: %s", name, last.body)
			}
			if ours := last.auth == "Bot tok-en"; ours != (name == "post" || name == "edit") {
				t.Errorf("%s: Authorization %q", name, last.auth)
			}
		}
		if err := r.Respond(ctx, i, ReplyModal, Outgoing{Body: map[string]any{"title": "x", "custom_id": "y"}}); err != nil {
			t.Error(err)
		}
		if b := a.calls[len(a.calls)-1].body; strings.Contains(b, "allowed_mentions") {
			t.Errorf("a modal is no message: %s", b)
		}
		if _, err := r.Post(ctx, "10", Outgoing{Body: []string{"no object"}}); err == nil {
			t.Error("a body that is no object was sent")
		}
	})
	t.Run("files", func(t *testing.T) {
		rest(t, func(_ int, r *http.Request, body []byte) (*http.Response, error) {
			_, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
			if err != nil {
				t.Error(err)
			}
			form, err := multipart.NewReader(strings.NewReader(string(body)), params["boundary"]).ReadForm(1 << 20)
			if err != nil {
				t.Fatal(err)
			}
			if got := form.Value["payload_json"][0]; !strings.Contains(got, `"attachments":[{"filename":"a\"b.txt","id":"0"}]`) {
				t.Error(got)
			}
			if f := form.File["files[0]"][0]; f.Filename != `a"b.txt` || f.Size != 4 {
				t.Errorf("%+v", f)
			}
			return answer(200, posted)
		}, func(t *testing.T, r *REST, _ *api) {
			if _, err := r.Post(t.Context(), "10", Outgoing{Body: map[string]any{"content": ""}, Files: []File{{`a"b.txt`, []byte("text")}}}); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("an id cannot leave its place", func(t *testing.T) {
		rest(t, func(_ int, r *http.Request, _ []byte) (*http.Response, error) {
			if got := r.URL.EscapedPath(); got != "/api/v10/channels/..%2Fusers%2F@me%3Fx/typing" {
				t.Error(got)
			}
			return answer(204, "")
		}, func(t *testing.T, r *REST, _ *api) {
			if err := r.Typing(t.Context(), "../users/@me?x"); err != nil {
				t.Error(err)
			}
		})
	})
}

func TestMessagesLeavesOutWhatIsBroken(t *testing.T) {
	rest(t, func(_ int, r *http.Request, _ []byte) (*http.Response, error) {
		if got := r.URL.RawQuery; got != "after=5&limit=100" {
			t.Error(got)
		}
		return answer(200, `[{"id":"7","channel_id":"10","author":{"id":"1"},"content":"x"},{"id":"6","channel_id":"10","author":{"id":"1"},"content":["x"]}]`)
	}, func(t *testing.T, r *REST, _ *api) {
		list, left, err := r.Messages(t.Context(), "10", Page{After: "5", Limit: 100})
		if err != nil || len(list) != 1 || list[0].ID != "7" || left != 1 {
			t.Errorf("%v, %d, %v", list, left, err)
		}
	})
}

func TestDownload(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("the token went to a file server")
		}
		_, _ = w.Write([]byte("0123456789"))
	}))
	defer srv.Close()
	r, err := NewREST(RESTConfig{Token: "tok-en", APIURL: srv.URL + "/api/v10"})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if data, whole, err := r.Download(t.Context(), srv.URL+"/f", 10); string(data) != "0123456789" || !whole || err != nil {
		t.Errorf("%s, %v, %v", data, whole, err)
	}
	if data, whole, err := r.Download(t.Context(), srv.URL+"/f", 4); string(data) != "0123" || whole || err != nil {
		t.Errorf("%s, %v, %v", data, whole, err)
	}
	for _, link := range []string{"http://169.254.169.254/x", "https://cdn.discordapp.com.evil.test/x", "http://cdn.discordapp.com/x", "https://u:p@cdn.discordapp.com/x", "file:///etc/passwd", "::"} {
		if _, _, err := r.Download(t.Context(), link, 10); err == nil {
			t.Errorf("%s was fetched", link)
		}
	}
}

func TestNewREST(t *testing.T) {
	for name, cfg := range map[string]RESTConfig{
		"no token":          {},
		"token with prefix": {Token: "Bot abc"},
		"no address":        {Token: "abc", APIURL: "discord.com"},
	} {
		if _, err := NewREST(cfg); err == nil || strings.Contains(err.Error(), "abc") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
