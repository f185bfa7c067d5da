// Package client is the command line as a client of a running bot: it reads conversations, writes
// in them, and decides on requests, over the API of the web console and with a token.
package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"countersign/internal/config"
	"countersign/internal/words"
)

const (
	// maxAnswer bounds an answer of the bot.
	maxAnswer = 64 << 20
	patience  = 30 * time.Second
	fileName  = "client.json"
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
	base, token string
	http        *http.Client
}

// New returns a client of an account.
func New(a Account) *Client {
	return &Client{base: strings.TrimRight(a.URL, "/"), token: a.Token, http: &http.Client{
		Timeout:       patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the token is for this address
	}}
}

// refusal is an answer that is none of success.
type refusal struct {
	status   int
	sentence string
}

// Error implements error.
func (r *refusal) Error() string { return r.sentence }

// Call asks the bot; in is sent as JSON, and the answer is read into out, which may be nil.
func (c *Client) Call(ctx context.Context, method, path string, in, out any) error {
	return c.call(ctx, method, path, in, out, nil)
}

func (c *Client) call(ctx context.Context, method, path string, in, out any, header http.Header) error {
	raw, err := c.fetch(ctx, method, path, in, header)
	if err != nil || out == nil || len(raw) == 0 {
		return err
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return fmt.Errorf("the answer of %s can't be read (%w); it may be of another version", c.base, err)
	}
	return nil
}

// fetch is call for an answer as it comes.
func (c *Client) fetch(ctx context.Context, method, path string, in any, header http.Header) ([]byte, error) {
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+"/api"+path, body)
	if err != nil {
		return nil, config.Errorf("%q is no address of a bot (%v)", c.base, err)
	}
	maps.Copy(req.Header, header)
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("the bot at %s doesn't answer (%w); check that it runs and that this machine reaches it", c.base, err)
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("the answer of %s broke off (%w); try again", c.base, err)
	}
	if res.StatusCode >= http.StatusMultipleChoices {
		var said struct {
			Error string `json:"error"`
		}
		if json.Unmarshal(raw, &said) != nil || said.Error == "" {
			said.Error = fmt.Sprintf("%s answers with HTTP %d and is maybe no bot, or one of another version", c.base, res.StatusCode)
		}
		return nil, &refusal{res.StatusCode, said.Error}
	}
	return raw, nil
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
	if c.http.Jar, err = cookiejar.New(nil); err != nil {
		return Account{}, err
	}
	header := http.Header{"Origin": {origin}}
	if err := c.call(ctx, http.MethodPost, "/login", map[string]string{"code": code}, nil, header); err != nil {
		return Account{}, err
	}
	var me struct {
		Name string `json:"name"`
		CSRF string `json:"csrf"`
	}
	if err := c.call(ctx, http.MethodGet, "/me", nil, &me, nil); err != nil {
		return Account{}, err
	}
	header.Set("X-CSRF-Token", me.CSRF)
	var token struct{ ID, Token string }
	err = c.call(ctx, http.MethodPost, "/tokens", w, &token, header)
	if out := c.call(ctx, http.MethodPost, "/logout", struct{}{}, nil, header); err == nil {
		err = out
	}
	if err != nil {
		return Account{}, err
	}
	return Account{URL: origin, Token: token.Token, ID: token.ID, User: me.Name}, nil
}

// newID names a message or a press, so that it counts once however often it is sent.
func newID() string { return "cli-" + strings.ToLower(rand.Text()) }
