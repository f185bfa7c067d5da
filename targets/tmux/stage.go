package tmux

import (
	"fmt"
	"strings"
)

// The key sequences that the staged rc file binds in the line editor. No keyboard sends
// them.
const (
	keyStatus = "\x1b[7973~" // report the status, as an "S" mark
	keyClear  = "\x1b[7974~" // clear the line
	// keyHistory reports what was typed since it was pressed last, as an "H" mark.
	keyHistory = "\x1b[7975~"
	// keyHide hides what the line editor writes.
	keyHide = "\x1b[7976~"
	// keyRun shows the line as it is about to be read, and moves standard error to the
	// companion.
	keyRun = "\x1b[7977~"
	// keyLoad does so for the text in the staged file that the line names. The line becomes
	// one that runs it.
	keyLoad = "\x1b[7978~"
	// keyState reports the state of the shell, as a "T" mark.
	keyState = "\x1b[7979~"
	// keyExpect takes the line for a state: the next keyRun or keyLoad clears the line, and
	// reports that by a "V" mark, unless the shell is in that state.
	keyExpect = "\x1b[7980~"
)

// clearAll, as bash quotes it, clears a terminal with its history.
const clearAll = `$'\033[H\033[2J\033[3J'`

// conf is the configuration of the instance's tmux servers.
func conf(term string, history, width, height int) string {
	return fmt.Sprintf(`# Written by countersign at every start; changes are lost.
set -g default-terminal %s
set -g history-limit %d
set -g default-size %dx%d
set -g remain-on-exit on
set -s exit-empty on
set -g update-environment ""
set -g allow-rename off
set -g automatic-rename off
set -g bell-action none
set -s set-clipboard off
set -s escape-time 20
set -g status-right "#{=40:pane_title}"
`, term, history, width, height)
}

// noPrompts keeps programs from opening a pager or asking on a terminal.
const noPrompts = `export PAGER=cat GIT_PAGER=cat SYSTEMD_PAGER= NO_COLOR=1 GIT_TERMINAL_PROMPT=0 DEBIAN_FRONTEND=noninteractive
unset HISTFILE TMOUT MAIL MAILCHECK
`

// rcData is the data of a pane's staged shell files.
type rcData struct {
	nonce   string
	runFile string // is runScript
	ttyFile string // holds the path of the companion's terminal
	endFile string // gets a line "shell seq code time" at each end of a command, while it exists
	env     []string
}

// firstLine holds the nonce, so that it is found again after a restart.
func (d rcData) firstLine() string { return "# countersign " + d.nonce + "\n" }

func nonceOf(rc string) string {
	line, _, _ := strings.Cut(rc, "\n")
	nonce, _ := strings.CutPrefix(line, "# countersign ")
	return nonce
}

func (d rcData) exports() string {
	var b strings.Builder
	for _, kv := range d.env {
		name, value, _ := strings.Cut(kv, "=")
		fmt.Fprintf(&b, "export %s=%s\n", name, shellQuote(value))
	}
	return b.String()
}

// bashRC is the rc file of a bash pane. Its marks:
//
//	C;seq            a command line has been read and starts (PS0, on standard error)
//	C;seq;a          keyRun or keyLoad: it is about to, with standard error on the companion
//	R                the same, on the companion: the line editor writes there until mark C, before which it is cleared
//	E;seq            the same end as D, on the companion
//	D;seq;code;dir   the command line has ended
//	P;seq;shell      the prompt has been printed, by the shell of that process number
//	Q                a prompt for more lines of the same command
//	S;seq;len;code;shell;run  the answer to keyStatus: len bytes are on the line, and keyRun or keyLoad came last at the prompt run
//	H;text           the answer to keyHistory: what was typed since the last time
//	T;state;path;names  the answer to keyState: the name of the shell's state, whether programs are found and
//	                 loaded as at its start (0 or 1), and its functions and aliases unless the state is "0", "*" if they are too many
//	V                keyRun or keyLoad: the state is not the one of keyExpect, so the line was cleared
//
// The hook runs with its standard error closed, so that "set -x" shows nothing of it. It
// writes to the terminal itself, so that "exec >file" does not lose a mark. It sets the
// prompts again each time, so that a command may change them. It starts no process.
//
// The bot's commands look as if a person had typed them. The line editor writes to standard
// error: keyHide closes that before the text comes. keyRun shows the line, and makes standard
// error the companion. There it stays while the command runs, and the hook moves it back
// before the next prompt. A person's commands have no part in that. Text that is not one complete line
// comes in a file, and runScript runs it as one unit that never waits for more lines. In the
// history it takes the place of the line that runs it ("history -s").
//
// A function whose standard error is closed cannot move it. It leaves that in __cs_x, for
// the line that called it, which "set -x" does not show either: it is off meanwhile.
// __cs_b must not assign a prompt: bash keeps pointers to their values while it reads a line.
//
// __cs_m prints the state of the shell: all that decides how a line is read and run, but what
// changes by itself, the directory, and the prompt hook. It runs in a subshell of a line and not of a
// function, where bash would not show all traps. __cs_t names the state: "0" as it was at the first
// prompt, else a number that only this shell has, and another one after each change that it has
// seen. So no value leaves the shell, and nothing is computed at a prompt but the first one. Paths
// that the shell remembers are dropped, so that PATH decides.
func bashRC(d rcData) string {
	rc := d.firstLine() + noPrompts + d.exports() + `set +H +o posix
shopt -s checkwinsize
shopt -u mailwarn
__cs_s=0
__cs_n=0
__cs_v='\u@\h:\w\$ '
__cs_j=@RUNFILE@
__cs_c= __cs_f= __cs_k=0 __cs_l= __cs_o= __cs_r=0 __cs_t= __cs_x= __cs_y=
__cs_b= __cs_i=$RANDOM$RANDOM __cs_m= __cs_q=0 __cs_w= __cs_z=
__cs_a=$PATH:${LD_PRELOAD-}:${LD_LIBRARY_PATH-}:${BASH_ENV-}
__cs_e() { local p; read -r p <@TTYFILE@ && [[ $p == /dev/* && -c $p ]] && exec @FD@>"$p"; }
__cs_q() {
  local LC_ALL=C i c o=
  for ((i = 0; i < ${#PWD}; i++)); do
    c=${PWD:i:1}
    case $c in [[:cntrl:]%]) builtin printf -v c '%%%02x' "'$c" ;; esac
    o+=$c
  done
  __cs_d=$o
}
__cs_w() {
  PROMPT_COMMAND='{ __cs_p; } 2>/dev/null'
  PS0='${__cs_o}\033]7973;@NONCE@;C;${__cs_s}\007'
  PS1=$__cs_v'\[\033]7973;@NONCE@;P;${__cs_s};$$\007\]'
  PS2='> \[\033]7973;@NONCE@;Q\007\]'
}
__cs_p() {
  __cs_r=$?
  set +e
  __cs_s=$((__cs_s + 1))
  __cs_d=$PWD
  case $PWD in *[[:cntrl:]%]*) __cs_q ;; esac
  builtin printf '\033]7973;@NONCE@;E;%s\007' "$__cs_s" >&@FD@ || {
    __cs_e && builtin printf '\033]7973;@NONCE@;E;%s\007' "$__cs_s" >&@FD@
  }
  [[ -t 1 ]] || exec 1>/dev/tty
  if [[ -w @ENDFILE@ ]]; then
    ((__cs_s % 1000)) || : >|@ENDFILE@
    builtin printf '%s %s %s %s\n' "$$" "$__cs_s" "${__cs_w:-$__cs_r}" "${EPOCHSECONDS-}" >>@ENDFILE@
  fi
  builtin printf '\033]7973;@NONCE@;D;%s;%s;%s\007' "$__cs_s" "$__cs_r" "$__cs_d" >/dev/tty
  __cs_w
  __cs_u
}
__cs_u() {
  __cs_x=
  if [[ -n $__cs_f ]]; then
    __cs_x='exec 2>/dev/tty'
    case $-$__cs_y in *x*)
      set +x
      __cs_x+='; set -x'
      ;;
    esac
  fi
  __cs_c= __cs_f= __cs_o= __cs_t= __cs_w= __cs_y=
}
__cs_m() {
  builtin set +x
  builtin printf '%s\n' "$@"
  builtin set +o
  builtin shopt -p
  builtin set -B
  builtin unset -v "${!__cs_@}" _ PROMPT_COMMAND PWD OLDPWD DIRSTACK RANDOM SRANDOM SECONDS EPOCHSECONDS EPOCHREALTIME BASHPID \
    BASH_MONOSECONDS BASH_COMMAND BASH_SUBSHELL BASH_SOURCE BASH_ARGC BASH_ARGV BASH_CMDS FUNCNAME LINENO HISTCMD PIPESTATUS COLUMNS \
    LINES READLINE_LINE READLINE_POINT READLINE_MARK READLINE_ARGUMENT
  builtin eval builtin set -- '"${!'{_,{A..Z},{a..z}}'@}"'
  for __cs_x; do
    [[ $__cs_x == @(_|__cs_x|__cs_y|BASH_LINENO) ]] || __cs_y+=("$__cs_x") # which cannot be unset
  done
  builtin declare -p "${__cs_y[@]}"
  for __cs_x in x r i l u n; do builtin declare "-${__cs_x}p"; done # attributes of what isn't set
  builtin declare -f
  builtin alias -p
  builtin enable -a
  builtin bind -X
  builtin bind -s
  builtin bind -p
  builtin umask
  builtin ulimit -a
  builtin ulimit -Ha
}
__cs_t() {
  local o=${1//x}
  [[ $1$__cs_y != *x* ]] || o+=x
  builtin hash -r
  builtin set -- "$o $2"
  if ! builtin test "$1" = "$__cs_m"; then
    __cs_m=$1 __cs_q=$((__cs_q + 1)) __cs_b=${__cs_b:-$1}
    builtin export -n __cs_m __cs_b
  fi
  __cs_z=$__cs_i.$__cs_q
  builtin test "$1" = "$__cs_b" && __cs_z=0
  [[ $__cs_w != "=$__cs_z" ]] || __cs_w=
}
__cs_n() {
  local LC_ALL=C p=1 n=${1//[[:cntrl:]]/ }
  ((${#n} < 6000)) || n='*'
  [[ $PATH:${LD_PRELOAD-}:${LD_LIBRARY_PATH-}:${BASH_ENV-} == "$__cs_a" ]] || p=0
  builtin printf '\033]7973;@NONCE@;T;%s;%s;%s\007' "$__cs_z" "$p" "$n" >/dev/tty
}
__cs_i() {
  local p=$__cs_v
  __cs_l=$1 __cs_x= READLINE_LINE=
  : >&@FD@ || __cs_e || return
  __cs_f=t __cs_x='exec 2>/dev/null'
  PROMPT_COMMAND='{ __cs_p; } 2>/dev/null; eval "$__cs_x"'
  case $- in *x*)
    set +x
    __cs_y='set -x'
    ;;
  esac
  builtin printf '\r\033[K%s' "${p@P}" >/dev/tty
}
__cs_g() {
  local t=$READLINE_LINE
  if [[ -n $__cs_w ]]; then
    __cs_w=- READLINE_LINE= __cs_x=
    builtin printf '\033]7973;@NONCE@;V\007%s\n' '# not run: the environment of this terminal changed since the approval' >/dev/tty
    return
  fi
  __cs_k=$__cs_s __cs_x=
  if [[ -n $__cs_f ]]; then
    builtin printf '\033]7973;@NONCE@;R\007' >&@FD@
    __cs_o=@CLEAR@
    __cs_x='exec 2>&@FD@; '
  fi
  if (($#)); then
    t=$2 __cs_c=$3 __cs_t=${3%$'\n'}
    READLINE_LINE='if __cs_a; then . "$__cs_j"; else . "$__cs_j"; fi'
    [[ $1 == a ]] || READLINE_LINE+=' 2>/dev/tty'
    [[ -z $__cs_y ]] || __cs_c='{ set -x; __cs_z; } 2>/dev/null'$'\n'$__cs_c
  else
    __cs_x+=$__cs_y
  fi
  __cs_y=
  [[ -z $__cs_f ]] || builtin printf '%s\n\033[?2004l\033]7973;@NONCE@;C;%s;a\007' "$t" "$__cs_s" >/dev/tty
}
__cs_k() {
  local f=$READLINE_LINE
  READLINE_LINE=
  . "$f"
}
__cs_a() {
  [[ ! -o history ]] || history -s -- "$__cs_t"
  return "$__cs_r"
}
__cs_z() { return "$__cs_r"; }
__cs_b() {
  local r=$?
  {
    __cs_e
    PROMPT_COMMAND='{ __cs_p; } 2>/dev/null'
    __cs_u
    builtin printf '\033]7973;@NONCE@;S;%s;%s;%s;%s;%s\007' "$__cs_s" "${#READLINE_LINE}" "$r" "$$" "$__cs_k" >/dev/tty
  } 2>/dev/null
}
__cs_h() {
  local LC_ALL=C n i c t o=
  {
    t=$(HISTTIMEFORMAT= builtin history 1)
    t=${t#"${t%%[0-9]*}"}
    n=${t%%[!0-9]*}
    n=${n:-0} t=
    ((n > __cs_n)) && t=$(HISTTIMEFORMAT= builtin history "$((n - __cs_n))")
    __cs_n=$n
    for ((i = 0; i < ${#t} && ${#o} < 6000; i++)); do
      c=${t:i:1}
      case $c in [[:cntrl:]%]) builtin printf -v c '%%%02x' "'$c" ;; esac
      o+=$c
    done
    builtin printf '\033]7973;@NONCE@;H;%s\007' "$o" >/dev/tty
  } 2>/dev/null
}
for __cs_m in emacs vi-insert vi-command; do
  bind -m "$__cs_m" -x '"\e[7973~": { __cs_b; } 2>/dev/null; eval "$__cs_x"'
  bind -m "$__cs_m" '"\e[7974~": kill-whole-line'
  bind -m "$__cs_m" -x '"\e[7975~": __cs_h'
  bind -m "$__cs_m" -x '"\e[7976~": { __cs_i "$_"; } 2>/dev/null; eval "$__cs_x"; : "$__cs_l"'
  bind -m "$__cs_m" -x '"\e[7977~": { builtin test -z "$__cs_w" || @STATE@; __cs_g; } 2>/dev/null; eval "$__cs_x"; : "$__cs_l"'
  bind -m "$__cs_m" -x '"\e[7978~": { builtin test -z "$__cs_w" || @STATE@; __cs_k; } 2>/dev/null; eval "$__cs_x"; : "$__cs_l"'
  bind -m "$__cs_m" -x '"\e[7979~": { @STATE@; builtin test "$__cs_z" = 0 && __cs_n || __cs_n "$(builtin compgen -A function; builtin compgen -a)"; } 2>/dev/null'
  bind -m "$__cs_m" -x '"\e[7980~": __cs_w==$READLINE_LINE READLINE_LINE='
done
# How answers of the terminal to a program begin; by default a search of the history.
bind -m emacs '"\eP": redraw-current-line'
bind -m vi-command '"\e[7974~": "ddi"'
__cs_m=
__cs_w
PROMPT_COMMAND+='; { @STATE@; } 2>/dev/null'
__cs_e
:
`
	return d.fill(rc)
}

// nameState names the state of the shell, in a line. Where it stands may be no reserved word, such as
// "[[": a text that ended too early can leave bash without them.
const nameState = `__cs_t "$-" "$(builtin trap -p; __cs_m "$@")"`

// runScript runs the text that keyLoad has left. A typed eval would do so as well, but bash
// does not recover its prompt from an eval whose text ends too early (seen in 5.2).
const runScript = `eval "$__cs_c"
`

// posixRC is the file that ENV names in a shell that is not bash. There is no hook before a
// command, so every command is a staged script, which writes mark C itself, and standard
// error is merged with standard output. The line that reads the script is seen only until
// it runs: __cs_t then shows the command in its place.
//
// __cs_c is the prompt at which a script was read last, which mark P tells. Only the end of a script
// is recorded, not that of an empty line.
func posixRC(d rcData) string {
	rc := d.firstLine() + noPrompts + d.exports() + `unset ENV
__cs_s=1
__cs_z= __cs_c=0
__cs_p() {
  if [ "$((__cs_s - 1))" = "$__cs_c" ] && [ -w @ENDFILE@ ]; then
    [ "$((__cs_s % 1000))" != 0 ] || : >|@ENDFILE@
    printf '%s %s %s %s\n' "$$" "$__cs_s" "$1" "$(date +%s)" >>@ENDFILE@
  fi
  set -- "$1" "${PWD:-$(pwd)}"
  case $2 in *[[:cntrl:]%]*) set -- "$1" "$(printf %s "$2" | od -An -v -tx1 | tr -d ' \n' | sed 's/../%&/g')" ;; esac
  printf '\033]7973;@NONCE@;D;%s;%s;%s\007' "$__cs_s" "$1" "$2"
}
__cs_t() {
  set -- "$1" "$2" $(stty size 2>/dev/null)
  [ "${4:-0}" -gt 0 ] 2>/dev/null || set -- "$1" "$2" 0 "$1"
  set -- "$2" "$((($1 + $4 - 1) / $4))"
  while [ "$2" -gt 0 ]; do
    printf '\033[A\033[2K'
    set -- "$1" "$(($2 - 1))"
  done
  printf '\r$ %s\n\033]7973;@NONCE@;C;0\007' "$1"
}
set +e
PS1='$(__cs_p $?)${__cs_z#$((__cs_s=__cs_s+1))}$ @P@'
PS2='> @Q@'
# The line editor of busybox measures the prompt, to know where a line wraps.
case ${BB_ASH_VERSION-}$(readlink /proc/$$/exe 2>/dev/null) in *busybox* | [0-9]*)
  PS1='\[$(__cs_p $?)\]${__cs_z#$((__cs_s=__cs_s+1))}$ \[@P@\]'
  PS2='> \[@Q@\]'
  ;;
esac
`
	rc = strings.ReplaceAll(rc, "@P@", "\x1b]7973;@NONCE@;P;0;$$;$__cs_c\x07")
	rc = strings.ReplaceAll(rc, "@Q@", "\x1b]7973;@NONCE@;Q\x07")
	return d.fill(rc)
}

func (d rcData) fill(rc string) string {
	return strings.NewReplacer("@NONCE@", d.nonce, "@TTYFILE@", shellQuote(d.ttyFile), "@RUNFILE@", shellQuote(d.runFile), "@ENDFILE@", shellQuote(d.endFile), "@FD@", errFD, "@CLEAR@", clearAll, "@STATE@", nameState).Replace(rc)
}

// posixStart is the beginning of a staged script for a POSIX shell that runs text and that
// line, at the prompt, reads. The hook there runs in a subshell, so "set -e" of an earlier
// command is undone here.
func posixStart(line, text string) string {
	return fmt.Sprintf("__cs_c=$((__cs_s - 1))\n__cs_t %d %s\nset +e\n", len("$ ")+len(line), shellQuote(shownText(text)))
}

const (
	// frameSize is the unit in which the relay copies to the visible terminal. It writes
	// whole units only, so that other output never tears one.
	frameSize = 512
	// relayReady is what the relay prints when its terminal is raw.
	relayReady = "countersign-relay-ready"
)

// relayScript runs in a companion pane. What commands write to the companion's terminal is
// their standard error. What the bot types into it is copied, in frames, to the visible
// terminal that the last "T" frame named.
//
// Its terminal may not be opened for reading, so that a pager that wants to read keys from
// standard error's terminal falls back to the visible one.
//
// Each line of standard error begins at the left, as on any terminal, so that it can be read
// from the screen after a restart of the bot.
const relayScript = `stty raw -echo opost onlcr || exit 1
chmod 200 "$(tty)"
printf '` + relayReady + `'
while :; do
  f=$(dd ibs=1 count=512 2>/dev/null)
  [ -n "$f" ] || exit 0
  case $f in
  *';T;/dev/'*)
    p=${f#*;T;}
    p=${p%%;*}
    [ -c "$p" ] && dd ibs=4096 obs=512 conv=notrunc of="$p" 2>/dev/null
    ;;
  esac
done
`

// superviseScript is the program of a pane. It starts the shell, reports with an "X" mark
// how the shell exited, and starts the next one: the pane, its terminal and its output
// outlive the shell. (tmux's own respawn-pane loses the last output for a control client,
// and can end the tmux server while some is pending.) With "set -m" the shell gets the
// terminal, and the supervisor gets it back even from a shell that was killed. The
// supervisor's own messages go nowhere.
func superviseScript(d rcData, shell string) string {
	return d.fill(`trap : INT QUIT TSTP
set -m
modes=$(stty -g)
exec 3>&1 >/dev/null 2>&1
while :; do
  (exec >&3 2>&3 3>&-; ` + shell + `)
  s=$?
  stty "$modes"
  read -r e <@TTYFILE@ && [ -c "$e" ] && printf '\033]7973;@NONCE@;E;x\007' >"$e"
  printf '\033]7973;@NONCE@;X;%s\007\r\n' "$s" >&3
  case $s in 126 | 127) sleep 1 ;; esac
done
`)
}

// keepScript runs in the first window of the companions' server. It ends that server once
// the one with the visible panes has ended.
func keepScript(main, relay string) string {
	return "while sleep 20; tmux -L " + main + " list-sessions >/dev/null 2>&1; do :; done\n" +
		"exec tmux -L " + relay + " kill-server\n"
}

// stageScript prepares the staging directory, and fails unless it is the user's own,
// private, and no symbolic link. It prints the terminal type to use.
const stageScript = `umask 077
d=$1
e=$(mkdir -p -- "$d" 2>&1)
if [ -L "$d" ] || [ ! -d "$d" ] || [ ! -O "$d" ]; then echo "${e:-$d is not a directory of ours}" >&2; exit 1; fi
chmod 700 "$d" || exit 1
find "$d" -type f -name 'c-*' -mmin +60 -exec rm -f -- {} + 2>/dev/null
for t in tmux-256color screen-256color screen; do
  for r in /etc/terminfo /lib/terminfo /usr/share/terminfo /usr/lib/terminfo; do
    if [ -e "$r/${t%"${t#?}"}/$t" ]; then echo "$t"; exit 0; fi
  done
done
if infocmp tmux-256color >/dev/null 2>&1; then echo tmux-256color; else echo screen; fi
`
