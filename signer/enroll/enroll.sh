# Lets certificates of the signer into this host, and nothing else of the bot:
#
#   %WATCH%   the bot's read-only account
#   %RUNAS%   the account that approved commands run as, each with its own certificate
#
# It can be run again at any time. To take it back, delete %CONF% and %LIB%, and reload sshd.
set -eu
root=${ROOT:-}
watch='%WATCH%' runas='%RUNAS%' name='%TARGET%'
conf=$root%CONF% lib=$root%LIB% state=$root/var/lib/countersign
sshd=$(command -v sshd || echo /usr/sbin/sshd)
fail() { echo "enroll: $*" >&2; exit 1; }
say() { echo "enroll: $*"; }

[ "$(id -u)" = 0 ] || fail "run this as root"
[ -x "$sshd" ] || fail "there is no sshd; install openssh-server"
[ -n "$root" ] || grep -Eqi '^[[:space:]]*include[[:space:]].*/etc/ssh/sshd_config\.d/\*' /etc/ssh/sshd_config ||
	fail "/etc/ssh/sshd_config doesn't read /etc/ssh/sshd_config.d; add \"Include /etc/ssh/sshd_config.d/*.conf\" as its first line"
for account in "$watch" "$runas"; do
	if ! id "$account" >/dev/null 2>&1; then
		useradd --system --create-home --shell /bin/sh --password '*' "$account" 2>/dev/null || adduser -S -s /bin/sh "$account" || fail "the account $account can't be created"
		say "created the account $account"
	fi
	[ -z "$root" ] || continue
	case $(getent shadow "$account" 2>/dev/null | cut -d: -f2) in
	'!'*) # without PAM, sshd lets nobody into a locked account
		! "$sshd" -T 2>/dev/null | grep -qx 'usepam no' || fail "the account $account is locked; run: usermod -p '*' $account"
		;;
	esac
	other=$("$sshd" -T -C "user=$account,host=localhost,addr=127.0.0.1" 2>/dev/null | sed -n 's/^trustedusercakeys //p')
	case $other in
	none | "" | %CA%) ;;
	*) fail "the account $account trusts another authority already ($other); choose an account that is for the bot alone" ;;
	esac
done
if [ -z "$root" ] && [ "$runas" = root ] && "$sshd" -T -C user=root,host=localhost,addr=127.0.0.1 2>/dev/null | grep -qx 'permitrootlogin no'; then
	fail "sshd never lets root in (PermitRootLogin no); set it to prohibit-password, or use another account for run_as"
fi

umask 022
mkdir -p "$lib" "$state" "$root/etc/ssh/sshd_config.d" "$root/etc/ssh/countersign_principals"
chmod 755 "$state"
for account in "$watch" "$runas"; do
	mkdir -p "$state/$account"
	chown "$account" "$state/$account"
	chmod 700 "$state/$account"
done
base64 -d >"$lib/countersign-runner.new" <<'RUNNER'
%PROGRAM%RUNNER
chmod 755 "$lib/countersign-runner.new"
"$lib/countersign-runner.new" version >/dev/null 2>&1 || fail "the runner doesn't run on this machine ($(uname -m)); take the program for it from the release"
mv "$lib/countersign-runner.new" "$lib/countersign-runner"
if [ -n "$root" ]; then echo "$state" >"$lib/countersign-runner.state"; else rm -f "$lib/countersign-runner.state"; fi
cat >"$root%CA%.new" <<'KEYS'
%KEYS%KEYS
mv "$root%CA%.new" "$root%CA%"
echo "countersign-watch:$name" >"$root/etc/ssh/countersign_principals/$watch"
echo "countersign-change:$name" >"$root/etc/ssh/countersign_principals/$runas"
[ ! -f "$conf" ] || cp "$conf" "$conf.before"
cat >"$conf" <<CONF
# Written by countersign target enroll.
Match User $watch
	TrustedUserCAKeys $root%CA%
	AuthorizedPrincipalsFile $root/etc/ssh/countersign_principals/%u
	AuthorizedKeysFile none
	DisableForwarding yes
Match User $runas
	TrustedUserCAKeys $root%CA%
	AuthorizedPrincipalsFile $root/etc/ssh/countersign_principals/%u
Match all
CONF
if [ -z "$root" ]; then
	if ! why=$("$sshd" -t 2>&1); then
		if [ -f "$conf.before" ]; then mv "$conf.before" "$conf"; else rm -f "$conf"; fi
		fail "sshd doesn't take the new settings, so they were taken back: $why"
	fi
	systemctl reload ssh 2>/dev/null || systemctl reload sshd 2>/dev/null || pkill -HUP -o -x sshd || say "reload sshd yourself"
fi
rm -f "$conf.before"
say "$name takes certificates of the signer now"
