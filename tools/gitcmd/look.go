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
	"countersign/targets/backend/door"
	"countersign/tools"
)

// setting is a git configuration value that overrides all files.
type setting struct{ key, value string }

// runSettings apply to every run: nothing in the background, nothing interactive, no submodules, no
// transport that runs a command from its address.
var runSettings = [...]setting{
	{"core.fsmonitor", "false"}, {"core.pager", "cat"}, {"color.ui", "false"}, {"color.status", "false"},
	{"color.branch", "false"}, {"color.diff", "false"}, {"column.ui", "never"}, {"column.branch", "never"}, {"column.status", "never"},
	{"protocol.ext.allow", "never"}, {"safe.bareRepository", "explicit"}, {"submodule.recurse", "false"},
	{"fetch.recurseSubmodules", "false"}, {"push.recurseSubmodules", "no"}, {"diff.submodule", "short"},
	{"status.submoduleSummary", "false"}, {"gc.auto", "0"}, {"maintenance.auto", "false"}, {"diff.autoRefreshIndex", "false"},
	{"log.showSignature", "false"}, {"diff.external", ""},
}

// readSettings also apply to reads: they disable every program that a repository can configure.
var readSettings = [...]setting{
	{"core.hooksPath", "/dev/null"}, {"core.sshCommand", "false"}, {"core.gitProxy", ""}, {"core.askPass", ""},
	{"core.editor", ":"}, {"core.alternateRefsCommand", "false"}, {"credential.helper", ""},
	{"gpg.program", "false"}, {"gpg.ssh.program", "false"}, {"gpg.x509.program", "false"},
}

// literalPathspecs makes git take file names literally. It is not for every run: git stash itself
// uses a pattern (":/") and would silently skip files.
const literalPathspecs = "GIT_LITERAL_PATHSPECS=1"

// environ returns the whole environment of git. With readOnly, git also reads no configuration
// except the repository's, contacts no other machine, and fetches no objects that a partial clone
// lacks.
func environ(c backend.Caps, readOnly bool) []string {
	env := append(backend.Environ(c),
		"GIT_EDITOR=:", "GIT_SEQUENCE_EDITOR=:", "GIT_MERGE_AUTOEDIT=no",
	)
	all := slices.Clone(runSettings[:])
	if readOnly {
		all = append(all, readSettings[:]...)
		env = append(env, literalPathspecs, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ALLOW_PROTOCOL=none",
			"GIT_NO_LAZY_FETCH=1", "GIT_ASKPASS=false", "SSH_ASKPASS=false")
	}
	env = append(env, "GIT_CONFIG_COUNT="+strconv.Itoa(len(all)))
	for i, s := range all {
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, s.key), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, s.value))
	}
	return env
}

// environmentHash summarizes the fixed environment by its hash, for the action.
func environmentHash(env []string) string {
	sum := sha256.Sum256([]byte(strings.Join(slices.Sorted(slices.Values(env)), "\x00")))
	return fmt.Sprintf("%d fixed variables, SHA-256 %s", len(env), hex.EncodeToString(sum[:]))
}

// repo is one repository, as it was found.
type repo struct {
	s               *suite
	dir, dirID      string
	part            string            // the part below dir that a read is limited to; "" is all of it
	top             string            // of the working tree
	git             string            // the git directory, absolute
	files           map[string]string // as approvals.Action.Files
	config          []setting         // the repository's own settings that name programs
	filters         []string          // filter drivers in the configuration
	readEnv, runEnv []string          // the environments
}

// limitedBuffer keeps at most limit bytes.
type limitedBuffer struct {
	mu    sync.Mutex
	limit int
	kept  []byte
	total int64
}

func (f *limitedBuffer) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.total += int64(len(b))
	if room := f.limit - len(f.kept); room > 0 {
		f.kept = append(f.kept, b[:min(room, len(b))]...)
	}
	return len(b), nil
}

func (f *limitedBuffer) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return string(f.kept)
}

// start runs git to its end. It returns an error only if the outcome is unknown.
func (s *suite) start(ctx context.Context, dir, id string, env, argv []string) (code int, stdout, stderr string, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	so, se := &limitedBuffer{limit: maxReadOutput}, &limitedBuffer{limit: keepOutput}
	p, err := door.Start(ctx, s.Target, door.Look, nil, backend.Spec{Argv: argv, Dir: dir, DirID: id, Env: env, Stdout: so, Stderr: se})
	if err != nil {
		return 0, "", "", err
	}
	res, err := p.Wait()
	switch {
	case err != nil:
		return 0, "", "", err
	case res.Killed:
		return 0, "", "", fmt.Errorf("it did not end within %s", readTimeout)
	case so.total > maxReadOutput:
		return 0, "", "", errors.New("it printed more than 4 MiB; do this with run_shell")
	}
	return res.Code, so.String(), se.String(), nil
}

// read runs a read-only git command in the repository; ok is false if git exits with an error.
func (r *repo) read(ctx context.Context, words ...string) (out string, ok bool, err error) {
	return r.readWithEnv(ctx, r.readEnv, words...)
}

func (r *repo) readWithEnv(ctx context.Context, env []string, words ...string) (out string, ok bool, err error) {
	argv := append([]string{"git", "--no-pager"}, words...)
	code, out, _, err := r.s.start(ctx, r.dir, r.dirID, env, argv)
	if err != nil {
		return "", false, tools.Failed("git %s could not look at %s: %w", words[0], r.dir, err)
	}
	return out, code == 0, nil
}

// noGitError is the error for a target without git.
func (s *suite) noGitError(err error) error {
	const text = "there is no git on %s that the bot could start; install git there, or use another target"
	if err == nil {
		return tools.Failed(text, s.Target.ID())
	}
	return tools.Failed(text+": %w", s.Target.ID(), err)
}

var versionText = regexp.MustCompile(`^git version (\d+)\.(\d+)`)

// checkVersion checks that git is installed and new enough to take its settings from the
// environment: GIT_CONFIG_COUNT exists since 2.31, GIT_CONFIG_GLOBAL since 2.32 (git's release
// notes). Older versions silently ignore them.
func (s *suite) checkVersion(ctx context.Context, env []string) error {
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
		return s.noGitError(err)
	case code == 126 || code == 127: // shells exit with these codes when there is no such program
		return s.noGitError(nil)
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

// open finds the repository of a directory; with part, name may be anything inside a repository.
func (s *suite) open(ctx context.Context, name string, part bool) (*repo, error) {
	caps, err := s.Target.Probe(ctx)
	if err != nil {
		return nil, tools.Failed("the target %s does not answer: %w", s.Target.ID(), err)
	}
	r := &repo{s: s, files: map[string]string{}, readEnv: environ(caps, true), runEnv: environ(caps, false)}
	if err := s.checkVersion(ctx, r.readEnv); err != nil {
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
		name, r.part = s.splitName(ctx, name)
	}
	if r.dir, err = s.Target.FS().Resolve(ctx, name); err != nil {
		return nil, tools.Failed("the directory %s cannot be used: %w", name, err)
	}
	if r.dirID, err = r.bindDirectory(ctx, r.dir); err != nil {
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

// splitName returns the directory in which git resolves a name, and the rest of the name: a file,
// or a path that exists only in history.
func (s *suite) splitName(ctx context.Context, name string) (dir, rest string) {
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

// bindDirectory binds the action to a directory and returns its identity.
func (r *repo) bindDirectory(ctx context.Context, dir string) (id string, err error) {
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
	code, out, stderr, err := r.s.start(ctx, r.dir, r.dirID, r.readEnv,
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
		return errWorktreeElsewhere(r.dir, top)
	}
	r.git = lines[1]
	var gitID string
	for i, d := range lines {
		id, err := r.bindDirectory(ctx, d)
		if err != nil {
			return err
		}
		if i == 1 {
			gitID = id
		}
	}
	// A ".git" file belongs to a worktree or a submodule.
	st, err := r.s.Target.FS().Stat(ctx, strings.TrimSuffix(top, "/")+"/.git")
	if err != nil || st.Mode.IsDir() && st.ID != gitID {
		return errWorktreeElsewhere(r.dir, top)
	}
	return r.readConfig(ctx)
}

// errWorktreeElsewhere refuses a repository whose own configuration says where its files are: it
// could name any directory of the machine.
func errWorktreeElsewhere(dir, top string) error {
	return tools.Failed("the repository at %s says that its files are in %s; use run_shell for such a repository", dir, top)
}

// programSetting matches settings that name a program to run.
var programSetting = regexp.MustCompile(`(?i)^(filter\..*\.(clean|smudge|process)|diff\.(.*\.)?(command|textconv|external)|merge\..*\.driver|` +
	`core\.(sshcommand|fsmonitor|editor|askpass|gitproxy|hookspath|alternaterefscommand|pager)|gpg\.(.*\.)?(program|defaultkeycommand)|` +
	`credential\.(.*\.)?helper|remote\..*\.(uploadpack|receivepack|vcs)|sequence\.editor|trailer\..*\.(command|cmd))$`)

// readConfig reads the repository's own configuration, including its includes.
func (r *repo) readConfig(ctx context.Context) error {
	out, ok, err := r.read(ctx, "config", "--list", "--show-scope", "--null")
	if err != nil {
		return err
	}
	if !ok {
		return tools.Failed("the configuration of the repository at %s cannot be read; repair it with run_shell", r.dir)
	}
	parts := strings.Split(out, "\x00")
	for i := 0; i+1 < len(parts); i += 2 {
		if parts[i] == "command" {
			continue // ours
		}
		key, value, _ := strings.Cut(parts[i+1], "\n")
		if !programSetting.MatchString(key) {
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

// programs lists the programs that the repository's configuration names.
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
	out, ok, err := r.readWithEnv(ctx, r.runEnv, "rev-parse", "--path-format=absolute", "--git-path", "hooks")
	if err != nil {
		return err
	}
	dir := strings.TrimSuffix(out, "\n")
	if !ok || !path.IsAbs(dir) || strings.Contains(dir, "\n") {
		return tools.Failed("git does not say where the hooks of %s are; use run_shell", r.dir)
	}
	for _, n := range names {
		file := path.Join(dir, n)
		b, err := r.s.Target.FS().ReadFile(ctx, file, maxReadOutput)
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

// commit resolves a revision and binds the action to its current commit.
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
	out, ok, err := r.read(ctx, "rev-parse", "--verify", "--quiet", rev)
	return strings.TrimSpace(out), ok, err
}

// head binds the action to the current branch and commit. branch is "" if HEAD is detached, sha is
// "" if there is no commit yet.
func (r *repo) head(ctx context.Context) (branch, sha string, err error) {
	ref, on, err := r.read(ctx, "symbolic-ref", "--quiet", "HEAD")
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

// staged binds the action to the staged content: every entry that differs from HEAD with its blob
// id. It does not bind the bytes of the index, which even a read may rewrite.
func (r *repo) staged(ctx context.Context) (n int, err error) {
	out, ok, err := r.read(ctx, "diff", "--cached", "--raw", "--no-abbrev", "--no-renames", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty", "-z")
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

// show adds the output of a read to the card. Beyond limit lines it adds only their number.
func (r *repo) show(ctx context.Context, title string, limit int, words ...string) ([]string, error) {
	out, ok, err := r.read(ctx, words...)
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
