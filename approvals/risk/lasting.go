package risk

import (
	"path"
	"slices"
	"strings"
)

var (
	// lastingTops are directories of a machine whose files decide what runs later, and who may sign in.
	lastingTops = strings.Fields("/etc/ /boot/ /usr/ /bin/ /sbin/ /lib /var/spool/cron /library/launchdaemons/ /library/launchagents/")
	// lastingDirs are such directories of an account or a checkout, wherever that is.
	lastingDirs = strings.Fields(`/.ssh/ /.gnupg/ /.config/systemd/ /.config/autostart/ /.config/git/ /.config/fish/ /.config/environment.d/ /.config/countersign/ /library/launchagents/
		/.git/ /.husky/ /.github/ /.gitea/ /.forgejo/ /.circleci/ /.buildkite/ /.woodpecker/ /.claude/ /.codex/ /.gemini/ /.opencode/ /.config/opencode/ /.cursor/ /.vscode/ /.idea/ /.direnv/`)
	// lastingNames are such files.
	lastingNames = strings.Fields(`.bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin .zlogout .kshrc .cshrc .tcshrc .login .logout .inputrc
		.xprofile .xinitrc .xsessionrc .pam_environment .rhosts .shosts .netrc .gitconfig .gitmodules .npmrc .yarnrc .yarnrc.yml .envrc .tmux.conf .vimrc .exrc authorized_keys
		.gitlab-ci.yml .gitlab-ci.yaml .travis.yml .drone.yml .woodpecker.yml azure-pipelines.yml bitbucket-pipelines.yml jenkinsfile .pre-commit-config.yaml lefthook.yml .mcp.json opencode.json`)
)

// Lasting reports whether a file decides what runs later or who may sign in: keys, jobs, units, what
// shells start with, hooks and settings of a repository, pipelines, settings of coding agents, and
// everything of the system.
func Lasting(name string) bool {
	name = strings.ToLower(path.Clean(name)) // some file systems take both for the same
	return slices.Contains(lastingNames, path.Base(name)) ||
		slices.ContainsFunc(lastingTops, func(dir string) bool { return strings.HasPrefix(name, dir) }) ||
		slices.ContainsFunc(lastingDirs, func(dir string) bool { return strings.Contains("/"+name, dir) })
}
