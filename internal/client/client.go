// Package client is the command line as a client of a running bot: it reads conversations, writes
// in them, and decides on requests, over the API of the web console and with a token.
package client

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"strings"

	"countersign/client"
	"countersign/internal/account"
	"countersign/internal/config"
	"countersign/internal/words"
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

// SignIn trades a link that works once for a token. Nothing else stays of it.
func SignIn(ctx context.Context, link string, w Wish) (Account, error) {
	u, err := url.Parse(link)
	code, ok := "", false
	if err == nil {
		code, ok = strings.CutPrefix(u.Fragment, "code=")
	}
	if !ok || u.Host == "" || code == "" {
		return Account{}, config.Errorf("this is no link to sign in; %s login NAME prints one on the bot's machine", words.Program())
	}
	origin := u.Scheme + "://" + strings.ToLower(u.Host)
	c := New(Account{URL: origin})
	if c.HTTP.Jar, err = cookiejar.New(nil); err != nil {
		return Account{}, err
	}
	header := http.Header{"Origin": {origin}}
	if err := c.Do(ctx, http.MethodPost, "/login", map[string]string{"code": code}, nil, header); err != nil {
		return Account{}, err
	}
	var me struct {
		Name string `json:"name"`
		CSRF string `json:"csrf"`
	}
	if err := c.Do(ctx, http.MethodGet, "/me", nil, &me, nil); err != nil {
		return Account{}, err
	}
	header.Set("X-CSRF-Token", me.CSRF)
	var token struct{ ID, Token string }
	err = c.Do(ctx, http.MethodPost, "/tokens", w, &token, header)
	if out := c.Do(ctx, http.MethodPost, "/logout", struct{}{}, nil, header); err == nil {
		err = out
	}
	if err != nil {
		return Account{}, err
	}
	return Account{URL: origin, Token: token.Token, ID: token.ID, User: me.Name}, nil
}

// newID names a message or a press, so that it counts once however often it is sent.
func newID() string { return "cli-" + strings.ToLower(rand.Text()) }
