package admin

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"countersign/adapters/chat"
	"countersign/bot"
	"countersign/cli"
	"countersign/cli/words"
	"countersign/config"
	"countersign/config/address"
	"countersign/config/storage"
	"countersign/store"
	"countersign/store/keyring"
)

// saidOf says what was forgotten.
func saidOf(o bot.Forget, done bot.Forgotten) string {
	if o.Thread != "" {
		return fmt.Sprintf("the conversation %s is removed; the audit record keeps its lines", o.Thread)
	}
	said := fmt.Sprintf("%s of %s removed from %s; the audit record keeps its lines", words.Plural(done.Messages, "message"), o.Person, words.Plural(done.Threads, "conversation"))
	if done.Open > 0 {
		said += fmt.Sprintf("; %s left out because they are open: run this again when they are over", words.Plural(done.Open, "conversation"))
	}
	return said
}

// forget removes a conversation, or what a person wrote in all of them.
func forget(ctx context.Context, out io.Writer, base string, o bot.Forget) error {
	e, _, err := config.Read()
	if err != nil {
		return err
	}
	db, err := storage.OpenExisting(ctx, e)
	var said string
	switch {
	case errors.Is(err, store.ErrLocked):
		said, err = askToForget(ctx, e, base, o)
	case err == nil:
		var done bot.Forgotten
		done, err = o.Run(ctx, db)
		said, err = saidOf(o, done), errors.Join(err, db.Close())
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, "ok: "+said)
	return err
}

const (
	forgetPath = "/store/forget"
	forgetKey  = "forget"
	bodyHeader = "X-Countersign-Body"
)

// signBody binds the body of a request to its code.
func signBody(key []byte, code string, body []byte) string {
	h := auditMAC(key, "body")
	_, _ = io.WriteString(h, code+"\x00")
	_, _ = h.Write(body)
	return hex.EncodeToString(h.Sum(nil)[:sha256.Size])
}

// askToForget has the running bot do it, which holds the store.
func askToForget(ctx context.Context, e config.Env, base string, o bot.Forget) (string, error) {
	key, err := os.ReadFile(filepath.Join(e.DataDir, "web.key"))
	if err != nil || len(key) != 32 {
		return "", fmt.Errorf("the store in %s is in use by a running bot, and the key to ask that bot is not there or cannot be read; stop the bot, or run this as its user", e.DataDir)
	}
	key = keyring.Derive(key, forgetKey)
	if base == "" {
		base = address.URL(e)
	}
	body, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	code := auditCode(key, time.Now())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(base, "/")+forgetPath, bytes.NewReader(body))
	if err != nil {
		return "", config.Errorf("--url is %q, which is no address; use one such as http://%s", base, address.Default)
	}
	req.Header.Set("Authorization", codeScheme+code)
	req.Header.Set(bodyHeader, signBody(key, code, body))
	client := address.Client()
	client.Transport.(*http.Transport).ResponseHeaderTimeout = 0 //nolint:forcetypeassert // the client's own; many conversations take a while
	defer client.CloseIdleConnections()
	res, err := client.Do(req)
	if err != nil {
		return "", fmt.Errorf("the store in %s is in use by a running bot, and no bot answers at %s; name its address with --url, or stop it (%w)", e.DataDir, base, err)
	}
	defer func() { _ = res.Body.Close() }()
	said, err := io.ReadAll(io.LimitReader(res.Body, 4096))
	text := words.Printable(strings.TrimSpace(string(said)))
	switch {
	case err != nil:
		return "", err
	case res.StatusCode == http.StatusConflict:
		return "", config.Errorf("%s", text)
	case res.StatusCode != http.StatusOK:
		return "", fmt.Errorf("the running bot at %s did not do it (HTTP %d: %s); name its address with --url, or stop it and try again", base, res.StatusCode, text)
	}
	return text, nil
}

// forgetHandler answers askToForget.
func forgetHandler(s bot.Site) http.Handler {
	key := keyring.Derive(s.Key, forgetKey)
	codes := newExporter(s.DB, key, nil, s.Log)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code, ok := strings.CutPrefix(r.Header.Get("Authorization"), codeScheme)
		body, err := io.ReadAll(io.LimitReader(r.Body, 4096))
		var o bot.Forget
		switch {
		case r.Method != http.MethodPost:
			http.Error(w, "use POST", http.StatusMethodNotAllowed)
			return
		case err != nil || !isLocal(r) || !ok || !codes.redeem(code) || !hmac.Equal([]byte(r.Header.Get(bodyHeader)), []byte(signBody(key, code, body))):
			http.Error(w, "this is for bot forget on the bot's own machine, with its data directory", http.StatusForbidden)
			return
		case json.Unmarshal(body, &o) != nil || (o.Thread == "") == (o.Person == ""):
			http.Error(w, "it names neither a conversation nor a person", http.StatusBadRequest)
			return
		}
		done, err := o.Run(r.Context(), s.DB)
		if refused, ok := errors.AsType[*config.Error](err); ok {
			http.Error(w, refused.Error(), http.StatusConflict)
			return
		}
		if err != nil {
			s.Log.ErrorContext(r.Context(), "it could not be forgotten", "error", err)
			http.Error(w, "the store failed; see the log", http.StatusInternalServerError)
			return
		}
		said := saidOf(o, done)
		s.Log.InfoContext(r.Context(), "the operator had something forgotten", "what", said)
		_, _ = io.WriteString(w, said)
	})
}

// threads prunes by keep.threads, where it is set.
func (r retention) threads(ctx context.Context, now time.Time) {
	if r.keep.Threads <= 0 {
		return
	}
	n, err := bot.PruneThreads(ctx, r.db, now.Add(-r.keep.Threads))
	if err != nil && ctx.Err() == nil {
		r.log.Error("old conversations could not be removed", "error", err)
	}
	if n > 0 {
		r.log.Log(ctx, slog.LevelInfo, "old conversations were removed", "conversations", n)
	}
}

// ForgetCommand is the command of that name.
func ForgetCommand() *cobra.Command {
	var base, person string
	c := &cobra.Command{
		Use: "forget THREAD | --person USER", Short: "Remove a conversation, or what a person wrote in all of them, while the bot runs or not",
		Long: `Remove a conversation (its transcript, its requests, and what the console shows of it), or what a
person wrote in all conversations, with their name and the reasons of their votes. The audit record keeps its lines
(ids, digests, commands and reasons, without secrets), and still verifies. Outputs and recordings go by outputs.keep and
recordings.keep; what other networks show of a conversation stays there.`,
		Args: func(_ *cobra.Command, args []string) error {
			if (len(args) == 1) == (person != "") || len(args) > 1 {
				return config.Errorf("name a conversation, or a person with --person, such as --person slack:T012:U345")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o := bot.Forget{Person: chat.UserID(person)}
			if len(args) > 0 {
				o.Thread = chat.ThreadID(args[0])
			}
			return forget(cmd.Context(), cmd.OutOrStdout(), base, o)
		},
	}
	c.Flags().StringVar(&person, "person", "", "the person, by their id: web:anna, slack:T012:U345 or discord:80351110224678912")
	c.Flags().StringVar(&base, "url", "", cli.URLFlag)
	return c
}
