// Package client is the command line as a client of a running bot: it reads conversations, writes
// in them, and decides on requests, over the API of the web console and with a token.
package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"countersign/client"
	"countersign/internal/config"
	"countersign/internal/words"
)

const (
	patience = 30 * time.Second
	fileName = "client.json"
)

// Account is who is signed in where.
type Account struct {
	URL   string `json:"url"`
	Token string `json:"token"`
	ID    string `json:"id"` // of the token, to end it
	User  string `json:"user"`
}

func accountFile() (string, error) {
	dir, err := config.UserDir()
	return filepath.Join(dir, fileName), err
}

// Load is the account of the environment (COUNTERSIGN_URL and COUNTERSIGN_TOKEN), or the one that
// signed in last.
func Load() (a Account, err error) {
	if token := os.Getenv("COUNTERSIGN_TOKEN"); token != "" {
		if a = (Account{URL: os.Getenv("COUNTERSIGN_URL"), Token: token}); a.URL == "" {
			return a, config.Errorf("COUNTERSIGN_TOKEN is set, and COUNTERSIGN_URL is not; set it to the bot's address")
		}
		return a, nil
	}
	path, err := accountFile()
	if err != nil {
		return a, err
	}
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return a, config.Errorf("this command line is not signed in; run %[1]s login LINK with a link that %[1]s login NAME prints on the bot's machine", words.Program())
	}
	if err == nil {
		err = json.Unmarshal(raw, &a)
	}
	if err != nil {
		return a, config.Errorf("%s can't be read (%v); sign in again with %s login LINK", path, err, words.Program())
	}
	return a, nil
}

// Save keeps an account for the next commands.
func (a Account) Save() error {
	path, err := accountFile()
	if err != nil {
		return err
	}
	raw, err := json.Marshal(a)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("the token can't be kept (%w); print it with --print", err)
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		return fmt.Errorf("the token can't be kept (%w); print it with --print", err)
	}
	return os.Chmod(path, 0o600) // it may have been there
}

// Forget removes what Save kept.
func Forget() error {
	path, err := accountFile()
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the token can't be removed (%w)", err)
	}
	return nil
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
