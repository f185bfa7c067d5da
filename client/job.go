package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
)

// InJob reports whether this process has what [ForJob] needs: COUNTERSIGN_URL, and an identity token or
// a way to one.
func InJob() bool {
	return os.Getenv("COUNTERSIGN_URL") != "" && (os.Getenv("COUNTERSIGN_ID_TOKEN") != "" || os.Getenv("ACTIONS_ID_TOKEN_REQUEST_URL") != "")
}

// ForJob returns a client of the bot at COUNTERSIGN_URL for a job in CI, and its token. The job proves
// who it is by its provider's identity token: GitHub's, if the workflow has the permission "id-token:
// write", or the one in COUNTERSIGN_ID_TOKEN, as GitLab's keyword id_tokens sets it.
func ForJob(ctx context.Context) (*Client, string, error) {
	address := os.Getenv("COUNTERSIGN_URL")
	if address == "" {
		return nil, "", errors.New("set COUNTERSIGN_URL to the bot's address")
	}
	c := New(address, "")
	identity := os.Getenv("COUNTERSIGN_ID_TOKEN")
	if identity == "" {
		var err error
		if identity, err = github(ctx, c.HTTP, c.base); err != nil {
			return nil, "", err
		}
	}
	var out struct {
		Token string `json:"token"`
	}
	if err := c.patiently(ctx, func() error {
		return c.Do(ctx, http.MethodPost, "/identity", map[string]string{"token": identity}, &out, nil)
	}); err != nil {
		return nil, "", err
	}
	return New(address, out.Token), out.Token, nil
}

// github asks the runner of GitHub Actions for an identity token
// (https://docs.github.com/actions/reference/security/oidc).
func github(ctx context.Context, h *http.Client, audience string) (string, error) {
	u, err := url.Parse(os.Getenv("ACTIONS_ID_TOKEN_REQUEST_URL"))
	if err != nil || u.Host == "" {
		return "", errors.New("this job has no identity token: give the workflow the permission id-token: write, or set COUNTERSIGN_ID_TOKEN")
	}
	q := u.Query()
	q.Set("audience", audience)
	u.RawQuery = q.Encode()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil) //nolint:gosec // the runner names its own address
	if err != nil {
		return "", err
	}
	r.Header.Set("Authorization", "Bearer "+os.Getenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN"))
	res, err := h.Do(r) //nolint:gosec // as above
	if err != nil {
		return "", fmt.Errorf("the runner gives no identity token (%w)", err)
	}
	defer func() { _ = res.Body.Close() }()
	var out struct {
		Value string `json:"value"`
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, 1<<20)).Decode(&out); err != nil || out.Value == "" {
		return "", fmt.Errorf("the runner gives no identity token: it answers with HTTP %d", res.StatusCode)
	}
	return out.Value, nil
}
