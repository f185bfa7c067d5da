package gitcmd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"countersign/targets/backend"
	"countersign/tools"
)

// setting is one value of git's configuration that overrides all files.
type setting struct{ key, value string }

// calm holds for every run: nothing in the background, nothing interactive, no
// submodules, no transport that runs a command of its address.
var calm = [...]setting{
	{"core.fsmonitor", "false"}, {"core.pager", "cat"}, {"color.ui", "false"}, {"color.status", "false"},
	{"color.branch", "false"}, {"color.diff", "false"}, {"column.ui", "never"}, {"column.branch", "never"}, {"column.status", "never"},
	{"protocol.ext.allow", "never"}, {"safe.bareRepository", "explicit"}, {"submodule.recurse", "false"},
	{"fetch.recurseSubmodules", "false"}, {"push.recurseSubmodules", "no"}, {"diff.submodule", "short"},
	{"status.submoduleSummary", "false"}, {"gc.auto", "0"}, {"maintenance.auto", "false"}, {"diff.autoRefreshIndex", "false"},
	{"log.showSignature", "false"}, {"diff.external", ""},
}

// still holds for looks besides: none of the programs that a repository can name.
var still = [...]setting{
	{"core.hooksPath", "/dev/null"}, {"core.sshCommand", "false"}, {"core.gitProxy", ""}, {"core.askPass", ""},
	{"core.editor", ":"}, {"core.alternateRefsCommand", "false"}, {"credential.helper", ""},
	{"gpg.program", "false"}, {"gpg.ssh.program", "false"}, {"gpg.x509.program", "false"},
}

// literal takes names of files as they are. It is not for every run: git stash itself
// uses a pattern (":/"), and would silently leave files where they are.
const literal = "GIT_LITERAL_PATHSPECS=1"

// environ is the whole environment of git. quiet is for looks: they also read
// no configuration but the repository's, reach no other machine and fetch nothing that a
// partial clone lacks.
func environ(c backend.Caps, quiet bool) []string {
	env := append(backend.Environ(c),
		"GIT_EDITOR=:", "GIT_SEQUENCE_EDITOR=:", "GIT_MERGE_AUTOEDIT=no",
	)
	all := slices.Clone(calm[:])
	if quiet {
		all = append(all, still[:]...)
		env = append(env, literal, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ALLOW_PROTOCOL=none", "GIT_NO_LAZY_FETCH=1", "GIT_ASKPASS=false", "SSH_ASKPASS=false")
	}
	env = append(env, "GIT_CONFIG_COUNT="+strconv.Itoa(len(all)))
	for i, s := range all {
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, s.key), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, s.value))
	}
	return env
}

// environment is the fixed environment as its hash, for the action.
func environment(env []string) string {
	sum := sha256.Sum256([]byte(strings.Join(slices.Sorted(slices.Values(env)), "\x00")))
	return fmt.Sprintf("%d fixed variables, SHA-256 %s", len(env), hex.EncodeToString(sum[:]))
}

// repo is one repository, as it was found.
type repo struct {
	s            *suite
	dir, dirID   string
	part         string            // that a look is limited to, below dir; "" is everything
	top          string            // of the working tree
	git          string            // its directory, absolute
	files        map[string]string // as approvals.Action.Files
	config       []setting         // of the repository itself that name programs
	filters      []string          // drivers that it names
	quiet, plain []string          // the environments
}

// full is a buffer that takes no more than its limit.
type full struct {
	mu    sync.Mutex
	limit int
	kept  []byte
	total int64
}

func (f *full) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.total += int64(len(b))
	if room := f.limit - len(f.kept); room > 0 {
		f.kept = append(f.kept, b[:min(room, len(b))]...)
	}
	return len(b), nil
}

func (f *full) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return string(f.kept)
}

// start runs git to its end; only an outcome that is not known is an error.
func (s *suite) start(ctx context.Context, dir, id string, env, argv []string) (code int, stdout, stderr string, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	so, se := &full{limit: maxLook}, &full{limit: keepOutput}
	p, err := s.Target.Start(ctx, backend.Spec{Argv: argv, Dir: dir, DirID: id, Env: env, Stdout: so, Stderr: se})
	if err != nil {
		return 0, "", "", err
	}
	res, err := p.Wait()
	switch {
	case err != nil:
		return 0, "", "", err
	case res.Killed:
		return 0, "", "", fmt.Errorf("it did not end within %s", lookTime)
	case so.total > maxLook:
		return 0, "", "", errors.New("it printed more than 4 MiB; do this with run_shell")
	}
	return res.Code, so.String(), se.String(), nil
}

// ask runs a look in the repository; ok is false where git says no.
func (r *repo) ask(ctx context.Context, words ...string) (out string, ok bool, err error) {
	return r.askAs(ctx, r.quiet, words...)
}

func (r *repo) askAs(ctx context.Context, env []string, words ...string) (out string, ok bool, err error) {
	argv := append([]string{"git", "--no-pager"}, words...)
	code, out, _, err := r.s.start(ctx, r.dir, r.dirID, env, argv)
	if err != nil {
		return "", false, tools.Failed("git %s could not look at %s: %w", words[0], r.dir, err)
	}
	return out, code == 0, nil
}

// missing is what a target without git is told.
func (s *suite) missing(err error) error {
	const text = "there is no git on %s that the bot could start; install git there, or use another target"
	if err == nil {
		return tools.Failed(text, s.Target.ID())
	}
	return tools.Failed(text+": %w", s.Target.ID(), err)
}

var versionText = regexp.MustCompile(`^git version (\d+)\.(\d+)`)

// present makes sure that git is there, and new enough to take its settings from the
// environment: GIT_CONFIG_COUNT is of 2.31, GIT_CONFIG_GLOBAL of 2.32 (git's release
// notes). An older one would ignore them without a word.
func (s *suite) present(ctx context.Context, env []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.new {
		return nil
	}
	code, out, _, err := s.start(ctx, "", "", env, []string{"git", "--version"})
	switch {
	case errors.Is(err, backend.ErrLost) || ctx.Err() != nil:
		return tools.Failed("the target %s does not answer: %w", s.Target.ID(), err)
	case err != nil:
		return s.missing(err)
	case code == 126 || code == 127: // as shells tell that there is no such program
		return s.missing(nil)
	}
	m := versionText.FindStringSubmatch(out)
	if code != 0 || m == nil {
		return tools.Failed("git on %s does not tell its version, so it is not used; repair it, or use another target", s.Target.ID())
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	if major < 2 || major == 2 && minor < 32 {
		return tools.Failed("git on %s is version %s.%s, and these tools need 2.32; use run_shell, or a newer git", s.Target.ID(), m[1], m[2])
	}
	s.new = true
	return nil
}

// open finds the repository of a directory, or, where the call may be about a part of one,
// of that part.
func (s *suite) open(ctx context.Context, name string, part bool) (*repo, error) {
	caps, err := s.Target.Probe(ctx)
	if err != nil {
		return nil, tools.Failed("the target %s does not answer: %w", s.Target.ID(), err)
	}
	r := &repo{s: s, files: map[string]string{}, quiet: environ(caps, true), plain: environ(caps, false)}
	if err := s.present(ctx, r.quiet); err != nil {
		return nil, err
	}
	if name == "" {
		if name = s.Dir; name == "" {
			name = "."
		}
	}
	if strings.ContainsRune(name, 0) {
		return nil, tools.Invalid(`"path" holds a NUL byte, which no file name can; remove it`)
	}
	given := name
	if part {
		name, r.part = s.split(ctx, name)
	}
	if r.dir, err = s.Target.FS().Resolve(ctx, name); err != nil {
		return nil, tools.Failed("the directory %s cannot be used: %w", name, err)
	}
	if r.dirID, err = r.directory(ctx, r.dir); err != nil {
		return nil, err
	}
	if err := r.locate(ctx); err != nil {
		return nil, err
	}
	if part && r.part == "" && given != s.Dir && given != "." && r.dir != r.top {
		r.part = "."
	}
	return r, nil
}

// split is the directory in which git looks for a name, and the rest of the name: that of
// a file, or of what is in the history only.
func (s *suite) split(ctx context.Context, name string) (dir, rest string) {
	for dir = name; ; {
		st, err := s.Target.FS().Stat(ctx, dir)
		if err == nil && st.Mode.IsDir() {
			return dir, rest
		}
		parent := path.Dir(path.Clean(dir))
		if parent == dir {
			return name, ""
		}
		dir, rest = parent, path.Join(path.Base(dir), rest)
	}
}

// directory binds the action to a directory and returns its identity.
func (r *repo) directory(ctx context.Context, dir string) (id string, err error) {
	if r.s.Private != nil && r.s.Private(dir) {
		return "", tools.OffLimits(dir, dir, r.s.Roots)
	}
	st, err := r.s.Target.FS().Stat(ctx, dir)
	switch {
	case err != nil:
		return "", tools.Failed("the directory %s cannot be looked at: %w", dir, err)
	case !st.Mode.IsDir():
		return "", tools.Failed("%s is no directory; give a directory of the repository", dir)
	}
	state := "directory inode " + st.ID
	if st.ID == "" {
		state = "directory (the target has no inodes)"
	}
	r.files[strings.TrimSuffix(dir, "/")+"/"] = state
	return st.ID, nil
}

// locate finds the repository with git and reads its configuration.
func (r *repo) locate(ctx context.Context) error {
	code, out, stderr, err := r.s.start(ctx, r.dir, r.dirID, r.quiet,
		[]string{"git", "rev-parse", "--path-format=absolute", "--show-toplevel", "--absolute-git-dir", "--git-common-dir"})
	switch {
	case errors.Is(err, backend.ErrChanged):
		return tools.Failed("the directory %s was replaced while it was looked at; try again: %w", r.dir, err)
	case err != nil:
		return tools.Failed("git could not look at %s: %w", r.dir, err)
	case code != 0 && strings.Contains(stderr, "not a git repository"):
		return tools.Failed("%s is not in a git repository; give the directory of one as \"path\"", r.dir)
	case code != 0:
		return tools.Failed("git does not use the repository at %s: %s", r.dir, tools.TruncateHead(strings.TrimSpace(stderr), 500))
	}
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if len(lines) != 3 {
		return tools.Failed("the repository at %s has a name that takes more than a line; use run_shell", r.dir)
	}
	top := lines[0]
	r.top = top
	if r.dir != top && !strings.HasPrefix(r.dir, strings.TrimSuffix(top, "/")+"/") {
		return elsewhere(r.dir, top)
	}
	r.git = lines[1]
	var gitID string
	for i, d := range lines {
		id, err := r.directory(ctx, d)
		if err != nil {
			return err
		}
		if i == 1 {
			gitID = id
		}
	}
	// A ".git" that is a file is that of a worktree or a submodule.
	st, err := r.s.Target.FS().Stat(ctx, strings.TrimSuffix(top, "/")+"/.git")
	if err != nil || st.Mode.IsDir() && st.ID != gitID {
		return elsewhere(r.dir, top)
	}
	return r.readConfig(ctx)
}

// elsewhere refuses a repository whose own configuration says where its files are: it
// could say any directory of the machine.
func elsewhere(dir, top string) error {
	return tools.Failed("the repository at %s says that its files are in %s; use run_shell for such a repository", dir, top)
}

// program recognises the settings that name something to run.
var program = regexp.MustCompile(`(?i)^(filter\..*\.(clean|smudge|process)|diff\.(.*\.)?(command|textconv|external)|merge\..*\.driver|` +
	`core\.(sshcommand|fsmonitor|editor|askpass|gitproxy|hookspath|alternaterefscommand|pager)|gpg\.(.*\.)?(program|defaultkeycommand)|` +
	`credential\.(.*\.)?helper|remote\..*\.(uploadpack|receivepack|vcs)|sequence\.editor|trailer\..*\.(command|cmd))$`)

// readConfig reads what the repository itself configures, with all that it includes.
func (r *repo) readConfig(ctx context.Context) error {
	out, ok, err := r.ask(ctx, "config", "--list", "--show-scope", "--null")
	if err != nil {
		return err
	}
	if !ok {
		return tools.Failed("the configuration of the repository at %s cannot be read; repair it with run_shell", r.dir)
	}
	parts := strings.Split(out, "\x00")
	for i := 0; i+1 < len(parts); i += 2 {
		if parts[i] == "command" {
			continue // our own
		}
		key, value, _ := strings.Cut(parts[i+1], "\n")
		if !program.MatchString(key) {
			continue
		}
		r.config = append(r.config, setting{key, value})
		if low := strings.ToLower(key); strings.HasPrefix(low, "filter.") {
			name := key[len("filter."):strings.LastIndexByte(key, '.')]
			if !slices.Contains(r.filters, name) {
				r.filters = append(r.filters, name)
			}
		}
	}
	return nil
}

// programs says which programs the repository's configuration names.
func (r *repo) programs() []string {
	var out []string
	for _, s := range r.config {
		out = append(out, fmt.Sprintf("The repository's own configuration names a program: %s = %s", strconv.Quote(s.key), strconv.Quote(s.value)))
	}
	return out
}

// bindHooks binds the action to the hooks that git may run.
func (r *repo) bindHooks(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	out, ok, err := r.askAs(ctx, r.plain, "rev-parse", "--path-format=absolute", "--git-path", "hooks")
	if err != nil {
		return err
	}
	dir := strings.TrimSuffix(out, "\n")
	if !ok || !path.IsAbs(dir) || strings.Contains(dir, "\n") {
		return tools.Failed("git does not say where the hooks of %s are; use run_shell", r.dir)
	}
	for _, n := range names {
		file := path.Join(dir, n)
		b, err := r.s.Target.FS().ReadFile(ctx, file, maxLook)
		switch {
		case err == nil:
			sum := sha256.Sum256(b)
			r.files[file] = hex.EncodeToString(sum[:])
		case errors.Is(err, backend.ErrLost) || ctx.Err() != nil:
			return tools.Failed("the hook %s could not be looked at: %w", file, err)
		case !errors.Is(err, fs.ErrNotExist):
			r.files[file] = "a hook whose content cannot be read"
		}
	}
	return nil
}

// commit resolves a revision and binds the action to what it is now.
func (r *repo) commit(ctx context.Context, argument, rev string) (sha string, err error) {
	if err := revision(argument, rev); err != nil {
		return "", err
	}
	sha, ok, err := r.resolve(ctx, rev+"^{commit}")
	if err != nil {
		return "", err
	}
	if !ok {
		return "", tools.Failed("%s is no commit of the repository at %s; look with git_branch or git_log", tools.Quote(rev), r.dir)
	}
	r.files["revision "+rev] = "commit " + sha
	return sha, nil
}

func (r *repo) resolve(ctx context.Context, rev string) (sha string, ok bool, err error) {
	out, ok, err := r.ask(ctx, "rev-parse", "--verify", "--quiet", rev)
	return strings.TrimSpace(out), ok, err
}

// head binds the action to the present branch and commit. branch is "" where HEAD is
// detached, sha where there is no commit yet.
func (r *repo) head(ctx context.Context) (branch, sha string, err error) {
	ref, on, err := r.ask(ctx, "symbolic-ref", "--quiet", "HEAD")
	if err != nil {
		return "", "", err
	}
	state := "detached"
	if on {
		state = strings.TrimSpace(ref)
		branch = strings.TrimPrefix(state, "refs/heads/")
	}
	sha, ok, err := r.resolve(ctx, "HEAD^{commit}")
	if err != nil {
		return "", "", err
	}
	if !ok {
		sha = ""
	}
	at := "commit " + sha
	if sha == "" {
		at = "no commit yet"
	}
	r.files[r.git+"/HEAD"] = state + ", " + at
	return branch, sha, nil
}

// staged binds the action to what is staged: every entry that differs from HEAD
// with its content's id, not the bytes of the index, which a mere look renews.
func (r *repo) staged(ctx context.Context) (n int, err error) {
	out, ok, err := r.ask(ctx, "diff", "--cached", "--raw", "--no-abbrev", "--no-renames", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty", "-z")
	if err != nil {
		return 0, err
	}
	if !ok {
		return 0, tools.Failed("the index of the repository at %s cannot be read; look at it with run_shell", r.dir)
	}
	sum := sha256.Sum256([]byte(out))
	n = strings.Count(out, "\x00") / 2
	r.files[r.git+"/index"] = count(n, "staged change", "staged changes") + ", SHA-256 " + hex.EncodeToString(sum[:])
	return n, nil
}

// show adds the output of a look to what people see; beyond limit lines it
// says how many there are.
func (r *repo) show(ctx context.Context, title string, limit int, words ...string) ([]string, error) {
	out, ok, err := r.ask(ctx, words...)
	if err != nil || !ok || strings.TrimSpace(out) == "" {
		return nil, err
	}
	lines := strings.Split(strings.TrimRight(out, "\n"), "\n")
	all := []string{title}
	for i, l := range lines {
		if i == limit {
			all = append(all, fmt.Sprintf("  and %d more lines", len(lines)-limit))
			break
		}
		all = append(all, "  "+l)
	}
	return all, nil
}
