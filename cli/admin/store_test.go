package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/bot"
	"countersign/cli"
	"countersign/store"
	"countersign/store/bolt"
	"countersign/store/keyring"
	"countersign/store/outbox"
	"countersign/tools/files"
	"countersign/tools/output"
)

// command runs the program as people do.
func command(t *testing.T, args ...string) (out string, code int, said string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	c := root()
	c.SetOut(&stdout)
	c.SetErr(&stderr)
	c.SetArgs(args)
	code = cli.Status(c.ExecuteContext(t.Context()), 0, "", &stderr)
	if n := strings.Count(stderr.String(), "\n"); n > 1 {
		t.Errorf("%v: %d lines are said: %s", args, n, &stderr)
	}
	return stdout.String(), code, stderr.String()
}

// noLeftovers checks that no temporary file was left beside name.
func noLeftovers(t *testing.T, dir string) {
	t.Helper()
	for _, pattern := range []string{".backup-*", "*.compact*"} {
		if left, _ := filepath.Glob(filepath.Join(dir, pattern)); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
}

func TestStoreBackupOfAStoppedBot(t *testing.T) {
	dir, db, _ := recordOne(t)
	stop(t, db)
	before, err := os.ReadFile(filepath.Join(dir, "countersign.db"))
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "backup.db")
	out, code, said := command(t, "backup", name)
	if code != 0 || !strings.HasPrefix(out, "ok: "+name+", ") {
		t.Fatalf("%d %s %s", code, out, said)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if after, err := os.ReadFile(filepath.Join(dir, "countersign.db")); err != nil || !bytes.Equal(after, before) {
		t.Errorf("a backup changed the store: %v", err)
	}
	noLeftovers(t, filepath.Dir(name))
	if out, code, said = command(t, "store", "check", name); code != 0 || !strings.HasPrefix(out, "ok: ") || !strings.Contains(out, "schema 1, opened 1 time\n") || !strings.Contains(out, "ok: 2 threads, 5 lines, 2 anchors") {
		t.Errorf("%d %s %s", code, out, said)
	}
	if _, code, said = command(t, "backup", name); code != 2 || said != "bot: "+name+" is there already; name a new file\n" {
		t.Errorf("%d %s", code, said)
	}
	// The store alone is what the store was.
	bare := filepath.Join(t.TempDir(), "store.db")
	if out, code, said := command(t, "backup", "--store-only", bare); code != 0 {
		t.Fatalf("%d %s %s", code, out, said)
	}
	raw, err := os.ReadFile(bare)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "countersign.db"), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code, said = audits(t, "", "verify"); code != 0 || !strings.Contains(out, "ok: 2 threads, 5 lines") {
		t.Errorf("%d %s %s", code, out, said)
	}
}

func TestStoreBackupOfARunningBot(t *testing.T) {
	_, db, _ := recordOne(t)
	b := bot.Site{DB: db, Key: bytes.Repeat([]byte{7}, 32), Log: slog.New(slog.DiscardHandler)}
	var sent bytes.Buffer
	h := backupHandler(b)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != backupPath {
			http.NotFound(w, r)
			return
		}
		h.ServeHTTP(&tap{ResponseWriter: w, to: &sent}, r)
	}))
	defer srv.Close()
	dir := t.TempDir()
	name := filepath.Join(dir, "backup.db")
	out, code, said := command(t, "backup", name, "--url", srv.URL+"/")
	if code != 0 || !strings.HasPrefix(out, "ok: ") {
		t.Fatalf("%d %s %s", code, out, said)
	}
	if out, code, said = command(t, "store", "check", name); code != 0 || !strings.Contains(out, "ok: 2 threads, 5 lines, 2 anchors") {
		t.Errorf("%d %s %s", code, out, said)
	}
	noLeftovers(t, dir)
	if sent.Len() == 0 || bytes.Contains(sent.Bytes(), []byte("systemctl restart app")) {
		t.Errorf("%d bytes were sent, as anybody can read them", sent.Len())
	}

	// The copy cannot be made where the bot keeps its store.
	for rule, tc := range map[string]struct {
		handler http.Handler
		said    string
	}{
		"no bot answers":    {nil, "in use by a running bot, and no bot answers at http://127.0.0.1:1; name its address with --url, or stop it"},
		"an older version":  {http.NotFoundHandler(), "gives no backup (HTTP 404: 404 page not found)"},
		"somebody else":     {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }), "is not the bot of this data directory"},
		"of another key":    {backupHandler(bot.Site{DB: db, Key: make([]byte, 32), Log: b.Log}), "gives no backup (HTTP 403: this is for bot backup"},
		"a cut answer":      {http.HandlerFunc(cutAnswer), "broke off"},
		"a bot in trouble":  {http.HandlerFunc(trouble), "could not make a backup (no room on the disk); see its log"},
		"one more at once":  {busyBackups(b), "HTTP 429: another backup is under way"},
		"a code used again": {reused(backupHandler(b)), "gives no backup (HTTP 403"},
	} {
		args := []string{"backup", filepath.Join(dir, "none.db")}
		if tc.handler != nil {
			s := httptest.NewServer(tc.handler)
			defer s.Close()
			args = append(args, "--url", s.URL)
		}
		out, code, said := command(t, args...)
		if code != 1 || out != "" || !strings.Contains(said, tc.said) {
			t.Errorf("%s: %d %s %s", rule, code, out, said)
		}
		if _, err := os.Stat(filepath.Join(dir, "none.db")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: a file was left", rule)
		}
	}
	noLeftovers(t, dir)
	if err := os.Remove(filepath.Join(os.Getenv("COUNTERSIGN_DATA_DIR"), "web.key")); err != nil {
		t.Fatal(err)
	}
	if _, code, said := command(t, "backup", filepath.Join(dir, "none.db"), "--url", srv.URL); code != 1 || !strings.Contains(said, "the key to ask that bot is not there") {
		t.Errorf("%d %s", code, said)
	}
}

// tap keeps what is sent.
type tap struct {
	http.ResponseWriter
	to io.Writer
}

func (w *tap) Write(b []byte) (int, error) {
	_, _ = w.to.Write(b)
	return w.ResponseWriter.Write(b)
}
func (w *tap) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func cutAnswer(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, strings.Repeat("x", 8192))
	panic(http.ErrAbortHandler)
}

func trouble(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Trailer", problemTrailer)
	_, _ = io.WriteString(w, "half")
	w.Header().Set(problemTrailer, "no room on the disk")
}

func busyBackups(b bot.Site) http.Handler {
	h := backupHandler(b).(*backups)
	h.codes.busy.Lock()
	return h
}

// reused is a program in between that has asked the bot itself before.
func reused(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(httptest.NewRecorder(), r)
		h.ServeHTTP(w, r)
	})
}

func TestStoreBackupCodesAreNotThoseOfExports(t *testing.T) {
	_, db, _ := recordOne(t)
	key := bytes.Repeat([]byte{7}, 32)
	b := bot.Site{DB: db, Key: key, Log: slog.New(slog.DiscardHandler)}
	for rule, tc := range map[string]struct {
		method, code, from string
		want               int
	}{
		"of an export":         {http.MethodGet, auditCode(key, time.Now()), "127.0.0.1:5", http.StatusForbidden},
		"good":                 {http.MethodGet, auditCode(keyring.Derive(b.Key, backupKey), time.Now()), "127.0.0.1:5", http.StatusOK},
		"from another machine": {http.MethodGet, auditCode(keyring.Derive(b.Key, backupKey), time.Now()), "192.0.2.9:5", http.StatusForbidden},
		"none":                 {http.MethodGet, "", "127.0.0.1:5", http.StatusForbidden},
		"POST":                 {http.MethodPost, auditCode(keyring.Derive(b.Key, backupKey), time.Now()), "127.0.0.1:5", http.StatusMethodNotAllowed},
	} {
		r := httptest.NewRequest(tc.method, backupPath, http.NoBody)
		r.RemoteAddr = tc.from
		r.Header.Set("Authorization", codeScheme+tc.code)
		w := httptest.NewRecorder()
		backupHandler(b).ServeHTTP(w, r)
		if w.Code != tc.want {
			t.Errorf("%s: %d, want %d", rule, w.Code, tc.want)
		}
	}
}

func TestStoreBackupSaysWhatWentWrongInTheBot(t *testing.T) {
	_, db, _ := recordOne(t)
	b := bot.Site{DB: db, Key: bytes.Repeat([]byte{7}, 32), Log: slog.New(slog.DiscardHandler)}
	h := backupHandler(b)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		cancel()
		h.ServeHTTP(w, r.WithContext(ctx))
	}))
	defer srv.Close()
	_, code, said := command(t, "backup", filepath.Join(t.TempDir(), "b"), "--url", srv.URL)
	if code != 1 || !strings.Contains(said, "the running bot could not make a backup (") || !strings.Contains(said, "context canceled") {
		t.Errorf("%d %s", code, said)
	}
}

func TestStoreCheckFindsDamage(t *testing.T) {
	dir, db, _ := recordOne(t)
	change(t, db, func(tx store.Tx) {
		tx.Set(store.Key("session", "x"), []byte(`{"half":`))
		tx.Set([]byte("odd key"), []byte("1"))
	})
	stop(t, db)
	out, code, said := command(t, "store", "check")
	for _, want := range []string{"row 6f6464206b6579: its key is damaged\n", "its value is damaged\n", "FAIL: ", "ok: 2 threads, 5 lines"} {
		if !strings.Contains(out, want) {
			t.Errorf("nothing says %q:\n%s", want, out)
		}
	}
	if code != 1 || said != "bot: the store has 2 damaged rows; keep a copy of it as it is, and restore a backup\n" {
		t.Errorf("%d %s", code, said)
	}

	again, err := bolt.Open(filepath.Join(dir, "countersign.db"), bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	change(t, again, func(tx store.Tx) {
		tx.Delete(store.Key("session", "x"))
		tx.Delete([]byte("odd key"))
		tx.Delete(store.Key("audit", "web:0", uint64(1)))
	})
	stop(t, again)
	out, code, said = command(t, "store", "check")
	if code != 1 || !strings.HasPrefix(out, "ok: ") || !strings.Contains(out, "thread web:0 line 1: is missing\n") || !strings.HasPrefix(said, "bot: the audit record has ") {
		t.Errorf("%d %s %s", code, out, said)
	}
}

func TestStoreCommandsOfARunningOrMissingStore(t *testing.T) {
	dir, db, _ := recordOne(t)
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	type want struct {
		args []string
		code int
		said string
	}
	expect := func(list map[string]want) {
		t.Helper()
		for rule, tc := range list {
			if out, code, said := command(t, tc.args...); code != tc.code || out != "" || !strings.HasPrefix(said, "bot: "+tc.said) {
				t.Errorf("%s: %d %s %s", rule, code, out, said)
			}
		}
	}
	inUse := "the store in " + dir + " is in use by a running bot"
	expect(map[string]want{
		"check of one in use":     {[]string{"store", "check"}, 1, inUse + "; check a copy of it (bot backup FILE, then bot store check FILE), or stop the bot"},
		"compact of one in use":   {[]string{"store", "compact"}, 1, inUse + "; stop the bot, and start it"},
		"prune of one in use":     {[]string{"store", "prune"}, 1, inUse + ", which prunes it every hour; stop the bot"},
		"restore of a text":       {[]string{"restore", text}, 1, "nothing was restored: " + text + " is of no use as a backup; take another one ("},
		"restore of no file":      {[]string{"restore", filepath.Join(dir, "none")}, 2, "nothing was restored: the backup cannot be read ("},
		"restore of nothing":      {[]string{"restore"}, 2, "restore: wrong number of arguments (0); write bot restore FILE | --database; see bot restore --help"},
		"check of a text":         {[]string{"store", "check", text}, 1, text + " is of no use as a backup; take another one ("},
		"check of no file":        {[]string{"store", "check", filepath.Join(dir, "none")}, 2, "the backup cannot be read ("},
		"check of two":            {[]string{"store", "check", "a", "b"}, 2, "store check takes one backup at most"},
		"compact of a name":       {[]string{"store", "compact", "a"}, 2, "store compact takes no arguments"},
		"prune of a name":         {[]string{"store", "prune", "a"}, 2, "store prune takes no arguments"},
		"no such command":         {[]string{"store", "mend"}, 2, `there is no command "mend" under bot store`},
		"backup without a name":   {[]string{"backup"}, 2, "backup: wrong number of arguments (0); write bot backup FILE; see bot backup --help"},
		"backup into nowhere":     {[]string{"backup", filepath.Join(dir, "none", "b")}, 1, "nothing can be written in " + filepath.Join(dir, "none")},
		"backup over a directory": {[]string{"backup", dir}, 2, dir + " is there already"},
	})
	stop(t, db)
	empty := t.TempDir()
	t.Setenv("COUNTERSIGN_DATA_DIR", empty)
	missing := "there is no store in " + empty + "; run this on the bot's machine"
	expect(map[string]want{
		"check without a store":   {[]string{"store", "check"}, 1, missing},
		"compact without a store": {[]string{"store", "compact"}, 1, missing},
		"prune without a store":   {[]string{"store", "prune"}, 1, missing},
		"backup without a store":  {[]string{"backup", filepath.Join(dir, "b")}, 1, missing},
	})
	if entries, _ := os.ReadDir(empty); len(entries) > 0 {
		t.Error("looking for a store made one")
	}
}

func TestStoreOfAnotherUserIsNotReplaced(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("giving a file to another user needs root")
	}
	dir, db, _ := recordOne(t)
	stop(t, db)
	if err := os.Chown(filepath.Join(dir, "countersign.db"), 4242, -1); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"compact", "prune"} {
		if _, code, said := command(t, "store", name); code != 1 || !strings.Contains(said, "belongs to another user (id 4242); run this as that user") {
			t.Errorf("%s: %d %s", name, code, said)
		}
	}
}

func TestStoreCompactKeepsTheRecord(t *testing.T) {
	dir, db, _ := recordOne(t)
	for i := range 40 {
		change(t, db, func(tx store.Tx) { store.Save(tx, store.Key("web", "big", i), strings.Repeat("x", 200<<10)) })
	}
	change(t, db, func(tx store.Tx) {
		for i := range 40 {
			tx.Delete(store.Key("web", "big", i))
		}
	})
	stop(t, db)
	out, code, said := command(t, "store", "compact")
	var before, after int64
	if _, err := fmt.Sscanf(out, "ok: %d bytes before, %d bytes after\n", &before, &after); err != nil || code != 0 || after >= before {
		t.Fatalf("%d %s %s %v", code, out, said, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "countersign.db")); err != nil || info.Size() != after {
		t.Errorf("%v %v", info, err)
	}
	noLeftovers(t, dir)
	if out, code, said = command(t, "store", "check"); code != 0 || !strings.Contains(out, "ok: 2 threads, 5 lines") {
		t.Errorf("%d %s %s", code, out, said)
	}
}

func TestStorePruneRemovesWhatIsOldOnly(t *testing.T) {
	dir, db, _ := recordOne(t)
	t.Setenv("COUNTERSIGN_CONFIG", "")
	old := time.Now().AddDate(0, -2, 0)
	const many = pruneBatch + 30 // more than a transaction takes
	change(t, db, func(tx store.Tx) {
		for i := range many {
			store.Save(tx, store.Key("undo", fmt.Sprint("old", i)), files.SavedChange{Thread: "web:1", At: old})
		}
		store.Save(tx, store.Key("undo", "young"), files.SavedChange{Thread: "web:1", At: time.Now()})
		for key, at := range map[string]time.Time{"old": old, "young": time.Now()} {
			outbox.Put(tx, "web:1", key, chat.Post{Key: key, Text: "x"}, at)
		}
		for _, row := range outbox.Pending(tx, "web:1", 0) {
			outbox.Sent(tx, row, "ref")
		}
	})
	stop(t, db)
	w := output.New(output.Config{Dir: filepath.Join(dir, "outputs"), Max: 1 << 20}).Begin("web:1", "call")
	if _, err := w.Keep("a long text"); err != nil {
		t.Fatal(err)
	}
	if err := filepath.WalkDir(filepath.Join(dir, "outputs"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return os.Chtimes(path, old, old)
	}); err != nil {
		t.Fatal(err)
	}
	out, code, said := command(t, "store", "prune")
	if want := fmt.Sprintf("ok: %d rows and 1 kept output removed\n", many+1); code != 0 || out != want {
		t.Errorf("%d %s %s", code, out, said)
	}
	if out, code, said = command(t, "store", "prune"); code != 0 || out != "ok: 0 rows and 0 kept outputs removed\n" {
		t.Errorf("again: %d %s %s", code, out, said)
	}
	if out, code, said = command(t, "store", "check"); code != 0 || !strings.Contains(out, "ok: 2 threads, 5 lines") {
		t.Errorf("%d %s %s", code, out, said)
	}
	r, err := bolt.OpenReader(filepath.Join(dir, "countersign.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	if err := r.View(t.Context(), func(tx store.Tx) error {
		if _, ok := tx.Get(store.Key("undo", "young")); !ok {
			t.Error("a young change cannot be undone any more")
		}
		if _, ok := outbox.Ref(tx, "web:1", "young"); !ok {
			t.Error("a young message was forgotten")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// prunings are the calls of what is named Prune... or prune... in the functions of a file.
func prunings(t *testing.T, file string, functions ...string) (found []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || !slices.Contains(functions, fn.Name.Name) {
			continue
		}
		ast.Inspect(fn, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				switch of := call.Fun.(type) {
				case *ast.SelectorExpr:
					if strings.HasPrefix(of.Sel.Name, "Prune") {
						found = append(found, last(of.X)+"."+of.Sel.Name)
					}
				case *ast.Ident:
					if strings.HasPrefix(of.Name, "prune") {
						found = append(found, of.Name)
					}
				}
			}
			return true
		})
	}
	return found
}

func last(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.SelectorExpr:
		return x.Sel.Name
	}
	return "?"
}

func TestStorePruneDoesAllThatARunningBotDoes(t *testing.T) {
	here := prunings(t, "store.go", "pruneAll", "pruneRows")
	running := append(prunings(t, "chores.go", "run"), prunings(t, "../../bot/serve.go", "tidy")...)
	if len(here) < 7 || len(running) < 4 {
		t.Fatalf("%v %v", here, running)
	}
	for _, call := range running {
		if call != "machines.PruneProcesses" && !slices.Contains(here, call) { // processes are on the targets
			t.Errorf("bot store prune does not do %s", call)
		}
	}
}
