# Lets certificates of the signer into this host:
#
#   %WATCH%   the bot's read-only account: nothing else logs in there
#   %RUNAS%   runs approved commands, each with its own certificate%KEPT%
#
# It can be run again at any time. To take it back, delete %CONF% and %LIB%, and reload sshd.
set -eu
root=${ROOT:-}
watch='%WATCH%' runas='%RUNAS%' name='%TARGET%' hostkey='%HOSTKEY%' keep='%KEEP%'
conf=$root%CONF% lib=$root%LIB% state=$root%STATE%
sshd=$(command -v sshd || echo /usr/sbin/sshd)
fail() { echo "enroll: $*" >&2; exit 1; }
say() { echo "enroll: $*"; }
setting() { "$sshd" -T -C "user=$1,host=localhost,addr=127.0.0.1" 2>/dev/null | sed -n "s/^$2 //p"; }

[ "$(id -u)" = 0 ] || fail "run this as root"
[ -x "$sshd" ] || fail "there is no sshd; install openssh-server"
[ -n "$root" ] || grep -Eqi '^[[:space:]]*include[[:space:]].*/etc/ssh/sshd_config\.d/\*' /etc/ssh/sshd_config ||
	fail "/etc/ssh/sshd_config doesn't read /etc/ssh/sshd_config.d; add \"Include /etc/ssh/sshd_config.d/*.conf\" as its first line"
for key in "$root"/etc/ssh/ssh_host_*_key.pub; do ssh-keygen -lf "$key" 2>/dev/null; done | grep -qF " $hostkey " ||
	fail "this host has no key $hostkey in /etc/ssh, which the signer knows $name by; correct host_key in signer.yaml, or run this on the right host"
for account in "$watch" $runas; do
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
	case $(setting "$account" trustedusercakeys) in
	none | "" | %CA%) ;;
	*) fail "the account $account trusts another authority already; choose an account that is for the bot alone" ;;
	esac
	if [ "$account" = root ] && [ "$(setting root permitrootlogin)" = no ]; then
		fail "sshd never lets root in (PermitRootLogin no); set it to prohibit-password, or use another account for run_as"
	fi
done

[ -n "$root" ] || [ "$(systemctl show -p User --value countersign.service 2>/dev/null)" != "$watch" ] ||
	fail "the bot itself runs here as $watch; choose another account, with watch: in signer.yaml and user: in the bot's configuration"

# Other ways into the accounts for approved commands.
others=
for account in $runas; do
	[ -z "$keep" ] || continue
	home=$(getent passwd "$account" | cut -d: -f6)
	files=$(setting "$account" authorizedkeysfile)
	for file in ${files:-.ssh/authorized_keys .ssh/authorized_keys2}; do
		[ "$file" != none ] || continue
		file=$(printf '%s' "$file" | sed "s|%h|$home|g; s|%u|$account|g")
		case $file in /*) ;; *) file=$home/$file ;; esac
		[ ! -s "$root$file" ] || others="$others
$account: $root$file: $(ssh-keygen -lf "$root$file" 2>/dev/null | tr '\n' ';')"
	done
	case $(setting "$account" authorizedkeyscommand) in none | "") ;; *) others="$others
$account: AuthorizedKeysCommand in sshd's settings" ;; esac
done
[ -z "$others" ] || fail "these keys open accounts for approved commands without any approval:$others
Remove them, or make the script with --keep-keys, which leaves them as they are."

# Services of the read-only account would act for it outside of the lock.
uid=$(id -u "$watch")
for group in $(id -Gn "$watch"); do
	case " %GROUPS% " in *" $group "*) fail "the read-only account $watch is in the group $group, which can change the system; take it out" ;; esac
done
if [ -z "$root" ]; then
	! sudo -n -l -U "$watch" 2>/dev/null | grep -q 'may run the following' || fail "the read-only account $watch has sudo rules; remove them"
	for tab in "/var/spool/cron/crontabs/$watch" "/var/spool/cron/$watch"; do
		[ ! -e "$tab" ] || fail "the read-only account $watch has a crontab; delete $tab"
	done
	! atq 2>/dev/null | grep -qw "$watch" || fail "the read-only account $watch has jobs of at; remove them with atrm"
	for tool in cron at; do
		! grep -qsx "$watch" "/etc/$tool.allow" || fail "the read-only account $watch is in /etc/$tool.allow; take it out"
		# Where there is no list, making one could let others in.
		[ -e "/etc/$tool.allow" ] || [ ! -e "/etc/$tool.deny" ] || grep -qx "$watch" "/etc/$tool.deny" || echo "$watch" >>"/etc/$tool.deny"
	done
	if command -v systemctl >/dev/null 2>&1; then
		loginctl disable-linger "$watch" 2>/dev/null || :
		rm -f "/var/lib/systemd/linger/$watch"
		systemctl mask --now "user@$uid.service" >/dev/null 2>&1 || ln -sf /dev/null "/etc/systemd/system/user@$uid.service"
	fi
fi

umask 022
mkdir -p "$lib" "$state" "$root/etc/ssh/sshd_config.d" "$root/etc/ssh/countersign_principals"
chmod 755 "$state"
for account in "$watch" $runas; do
	mkdir -p "$state/$account"
	chown "$account" "$state/$account"
	chmod 700 "$state/$account"
done
base64 -d >"$lib/countersign-runner.new" <<'RUNNER'
%PROGRAM%RUNNER
chmod 755 "$lib/countersign-runner.new"
"$lib/countersign-runner.new" version >/dev/null 2>&1 || fail "the runner doesn't run on this machine ($(uname -m)); take the program for it from the release"
mv "$lib/countersign-runner.new" "$lib/countersign-runner"
if [ -n "$root" ]; then echo "$root" >"$lib/countersign-runner.root"; else rm -f "$lib/countersign-runner.root"; fi
cat >"$root%CA%.new" <<'KEYS'
%KEYS%KEYS
mv "$root%CA%.new" "$root%CA%"
echo "countersign-watch:$name" >"$root/etc/ssh/countersign_principals/$watch"
[ ! -f "$conf" ] || cp "$conf" "$conf.before"
certificates="	TrustedUserCAKeys $root%CA%
	AuthorizedPrincipalsFile $root/etc/ssh/countersign_principals/%u
	AuthorizedPrincipalsCommand none
	DisableForwarding yes"
alone="	AuthorizedKeysFile none
	AuthorizedKeysCommand none
	AuthenticationMethods publickey"
{
	echo "# Written by countersign-signer enroll."
	printf 'Match User %s\n%s\n%s\n	PermitTTY no\n	ForceCommand %s watch\n' "$watch" "$certificates" "$alone" "$lib/countersign-runner"
	for account in $runas; do
		echo "countersign-change:$name" >"$root/etc/ssh/countersign_principals/$account"
		if [ -n "$keep" ]; then # whoever has such a key works there as before
			printf 'Match User %s\n%s\n' "$account" "$(printf '%s' "$certificates" | grep -v DisableForwarding)"
		else
			printf 'Match User %s\n%s\n%s\n' "$account" "$certificates" "$alone"
		fi
	done
	echo "Match all"
} >"$conf"
if [ -z "$root" ]; then
	if ! why=$("$sshd" -t 2>&1); then
		if [ -f "$conf.before" ]; then mv "$conf.before" "$conf"; else rm -f "$conf"; fi
		fail "sshd doesn't take the new settings, so they were taken back: $why"
	fi
	usermod -s "$lib/countersign-runner" "$watch" 2>/dev/null || sed -i "s|^\($watch:.*:\)[^:]*$|\1$lib/countersign-runner|" /etc/passwd
	systemctl reload ssh 2>/dev/null || systemctl reload sshd 2>/dev/null || pkill -HUP -o -x sshd || say "reload sshd yourself"
	pkill -KILL -U "$uid" 2>/dev/null || : # what it had left running, outside of the lock
fi
rm -f "$conf.before"
say "$name takes certificates of the signer now"
