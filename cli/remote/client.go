// Package remote is the command line as a client of a running bot: it reads conversations, writes
// in them, and decides on requests, over the API of the web console and with a token.
package remote

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"strings"

	"countersign/cli/words"
	"countersign/client"
	"countersign/client/account"
	"countersign/config"
)

// Account is who is signed in where.
type Account = account.Account

// Load is the account of the environment, that of a job in CI, or the one that signed in last.
func Load() (Account, error) {
	if os.Getenv("COUNTERSIGN_TOKEN") == "" && client.InJob() {
		c, token, err := client.ForJob(context.Background())
		if err != nil {
			return Account{}, err
		}
		return Account{URL: c.Address(), Token: token}, nil
	}
	a, err := account.Load()
	if err != nil {
		return a, config.Errorf("%v", err)
	}
	return a, nil
}

// Client talks to a bot. It is safe for concurrent use.
type Client struct {
	*client.Client
	base, token string
}

// New returns a client of an account.
func New(a Account) *Client {
	c := client.New(a.URL, a.Token)
	return &Client{c, c.Address(), a.Token}
}

// Call asks the bot; in is sent as JSON, and the answer is read into out, which may be nil.
func (c *Client) Call(ctx context.Context, method, path string, in, out any) error {
	return c.Do(ctx, method, path, in, out, nil)
}

// Wish is what a token is asked to be.
type Wish struct {
	Name  string `json:"name"`
	Scope string `json:"scope"`
	Days  int    `json:"days"`
}

// visit is a session of the console, by a link that works once.
type visit struct {
	*Client
	user   string
	header http.Header
}

// visitBy signs in by a link. Whoever does it has to leave.
func visitBy(ctx context.Context, link string) (v visit, err error) {
	u, err := url.Parse(strings.TrimSpace(link))
	code, ok := "", false
	if err == nil {
		code, ok = strings.CutPrefix(u.Fragment, "code=")
	}
	if !ok || u.Host == "" || code == "" {
		return v, config.Errorf("this is no link to sign in; %s login NAME prints one on the bot's machine", words.Program())
	}
	origin := u.Scheme + "://" + strings.ToLower(u.Host)
	v = visit{Client: New(Account{URL: origin}), header: http.Header{"Origin": {origin}}}
	if v.HTTP.Jar, err = cookiejar.New(nil); err != nil {
		return v, err
	}
	if err := v.post(ctx, "/login", map[string]string{"code": code}, nil); err != nil {
		return v, err
	}
	var me struct {
		Name string `json:"name"`
		CSRF string `json:"csrf"`
	}
	if err := v.Call(ctx, http.MethodGet, "/me", nil, &me); err != nil {
		return v, err
	}
	v.header.Set("X-CSRF-Token", me.CSRF)
	v.user = me.Name
	return v, nil
}

func (v visit) post(ctx context.Context, path string, in, out any) error {
	return v.Do(ctx, http.MethodPost, path, in, out, v.header)
}

func (v visit) leave(ctx context.Context) error { return v.post(ctx, "/logout", struct{}{}, nil) }

// SignIn trades a link that works once for a token. Nothing else stays of it.
func SignIn(ctx context.Context, link string, w Wish) (Account, error) {
	v, err := visitBy(ctx, link)
	if err != nil {
		return Account{}, err
	}
	var token struct{ ID, Token string }
	err = v.post(ctx, "/tokens", w, &token)
	if out := v.leave(ctx); err == nil {
		err = out
	}
	if err != nil {
		return Account{}, err
	}
	return Account{URL: v.base, Token: token.Token, ID: token.ID, User: v.user}, nil
}

// newID names a message or a press, so that it counts once however often it is sent.
func newID() string { return "cli-" + strings.ToLower(rand.Text()) }
