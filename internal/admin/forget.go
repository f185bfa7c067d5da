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
	"countersign/adapters/web"
	"countersign/agent/history"
	"countersign/approvals"
	"countersign/bot"
	"countersign/internal/address"
	"countersign/internal/cli"
	"countersign/internal/config"
	"countersign/internal/storage"
	"countersign/internal/words"
	"countersign/store"
	"countersign/store/keyring"
	"countersign/store/queue"
)

// isOver reports whether nothing is open in a thread: nobody works on it, waits for a decision or for a time.
func isOver(tx store.Tx, thread chat.ThreadID) bool {
	return queue.Idle(tx, string(thread)) && !(approvals.Ledger{}).HasOpen(tx, thread)
}

// eraseThread removes a conversation: its transcript, its requests, and what the console shows of it. The audit
// record keeps its lines.
func eraseThread(tx store.Tx, thread chat.ThreadID) {
	for _, id := range history.Erase(tx, thread) {
		(approvals.Ledger{}).Erase(tx, id)
	}
	web.EraseThread(tx, thread)
}

// threadsAtOnce is how many threads one transaction looks at.
const threadsAtOnce = 200

// pruneThreads removes the conversations that ended before a time.
func pruneThreads(ctx context.Context, db store.DB, before time.Time) (n int, err error) {
	done, err := eachThread(ctx, db, func(tx store.Tx, thread chat.ThreadID) bool {
		at, ok := history.Newest(tx, thread)
		return ok && at.Before(before) && isOver(tx, thread)
	}, func(tx store.Tx, thread chat.ThreadID) forgotten {
		eraseThread(tx, thread)
		return forgotten{threads: 1}
	})
	return done.threads, err
}

// forgotten counts what was removed, and the threads that were left out because they are open.
type forgotten struct{ messages, threads, open int }

// eachThread changes the threads that wanted picks, each in a transaction of its own. Both may run more than once.
func eachThread(ctx context.Context, db store.DB, wanted func(store.Tx, chat.ThreadID) bool, change func(store.Tx, chat.ThreadID) forgotten) (sum forgotten, err error) {
	scheduled := map[chat.ThreadID]bool{}
	err = db.View(ctx, func(tx store.Tx) error {
		clear(scheduled)
		for _, name := range queue.Scheduled(tx) {
			scheduled[chat.ThreadID(name)] = true
		}
		return nil
	})
	for after := chat.ThreadID(""); err == nil; {
		var all, picked []chat.ThreadID
		err = db.View(ctx, func(tx store.Tx) error {
			all, picked = history.Threads(tx, after, threadsAtOnce), nil
			for _, t := range all {
				if !scheduled[t] && wanted(tx, t) {
					picked = append(picked, t)
				}
			}
			return nil
		})
		for _, t := range picked {
			if err != nil {
				break
			}
			var done forgotten
			err = db.Update(ctx, func(tx store.Tx) error {
				if done = (forgotten{}); wanted(tx, t) {
					done = change(tx, t)
				}
				return nil
			})
			if err == nil {
				sum = forgotten{sum.messages + done.messages, sum.threads + done.threads, sum.open + done.open}
			}
		}
		if len(all) < threadsAtOnce {
			break
		}
		after = all[len(all)-1]
	}
	return sum, err
}

// oblivion is what is to be forgotten: one of both is set.
type oblivion struct {
	Thread chat.ThreadID `json:"thread,omitempty"`
	Person chat.UserID   `json:"person,omitempty"`
}

// do forgets it and says what that was.
func (o oblivion) do(ctx context.Context, db store.DB) (string, error) {
	if o.Thread != "" {
		return o.thread(ctx, db)
	}
	done, err := eachThread(ctx, db, func(store.Tx, chat.ThreadID) bool { return true }, func(tx store.Tx, thread chat.ThreadID) forgotten {
		if !isOver(tx, thread) {
			return forgotten{open: 1}
		}
		n, asked := history.ForgetPerson(tx, thread, o.Person)
		for _, id := range asked {
			(approvals.Ledger{}).ForgetPerson(tx, id, o.Person)
		}
		web.ForgetInThread(tx, thread, o.Person)
		return forgotten{messages: n, threads: min(n, 1)}
	})
	if err == nil {
		err = db.Update(ctx, func(tx store.Tx) error { web.ForgetPerson(tx, o.Person); return nil })
	}
	said := fmt.Sprintf("%s of %s removed from %s; the audit record keeps its lines", words.Plural(done.messages, "message"), o.Person, words.Plural(done.threads, "conversation"))
	if done.open > 0 {
		said += fmt.Sprintf("; %s left out because they are open: run this again when they are over", words.Plural(done.open, "conversation"))
	}
	return said, err
}

func (o oblivion) thread(ctx context.Context, db store.DB) (string, error) {
	err := db.Update(ctx, func(tx store.Tx) error {
		if _, ok := history.Newest(tx, o.Thread); !ok {
			return config.Errorf("there is no conversation %s here; its id is in countersign audit export, such as slack:T012:C012:1690000000.000100", o.Thread)
		}
		if !isOver(tx, o.Thread) {
			return config.Errorf("the conversation %s is open; say stop in it, and try again", o.Thread)
		}
		eraseThread(tx, o.Thread)
		return nil
	})
	return fmt.Sprintf("the conversation %s is removed; the audit record keeps its lines", o.Thread), err
}

// forget removes a conversation, or what a person wrote in all of them.
func forget(ctx context.Context, out io.Writer, base string, o oblivion) error {
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
		said, err = o.do(ctx, db)
		err = errors.Join(err, db.Close())
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
func askToForget(ctx context.Context, e config.Env, base string, o oblivion) (string, error) {
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
		var o oblivion
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
		said, err := o.do(r.Context(), s.DB)
		if refused, ok := errors.AsType[*config.Error](err); ok {
			http.Error(w, refused.Error(), http.StatusConflict)
			return
		}
		if err != nil {
			s.Log.ErrorContext(r.Context(), "it could not be forgotten", "error", err)
			http.Error(w, "the store failed; see the log", http.StatusInternalServerError)
			return
		}
		s.Log.InfoContext(r.Context(), "the operator had something forgotten", "what", said)
		_, _ = io.WriteString(w, said)
	})
}

// threads prunes by keep.threads, where it is set.
func (r retention) threads(ctx context.Context, now time.Time) {
	if r.keep.Threads <= 0 {
		return
	}
	n, err := pruneThreads(ctx, r.db, now.Add(-r.keep.Threads))
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
			o := oblivion{Person: chat.UserID(person)}
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
