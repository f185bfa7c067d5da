package impact

import (
	"context"

	"countersign/approvals/argv"
)

// program is what is known of one program.
type program struct {
	// options are all that its function understands; see parseArgs. With any
	// other, nothing is said.
	options string
	// globs allows patterns among the operands.
	globs bool
	// own says that what its reads show depends on the account (its crontab, its
	// kubeconfig): they say nothing of a command behind sudo.
	own bool
	// say adds lines, from proven reads alone.
	say func(ctx context.Context, p *probe, c call)
}

const (
	copyOptions  = "-abdfHilLnpPrRsTuvxZ -S: -t: --archive --backup? --force --interactive --no-clobber --recursive --verbose --update? --preserve? --no-preserve: --parents --target-directory: --no-target-directory --suffix: --one-file-system --sparse: --reflink? --dereference --no-dereference --strip-trailing-slashes --attributes-only --remove-destination"
	modeOptions  = "-cfvRHLP --changes --silent --quiet --verbose --recursive --reference: --dereference --no-dereference -h --preserve-root --no-preserve-root --from:"
	kubeScope    = "-n: --namespace: --context: --cluster: "
	kubeOptions  = "!cobra " + kubeScope + "-l: --selector: --field-selector: -A --all-namespaces --all -f: --filename: -k: --kustomize: -R --recursive --force --grace-period: --now --wait --timeout: --ignore-not-found --cascade? --dry-run? -o: --output: --replicas: --current-replicas: --to-revision: --request-timeout: --delete-emptydir-data --delete-local-data --ignore-daemonsets --disable-eviction --pod-selector: --server-side --force-conflicts --prune --validate? --field-manager: -p: --patch: --patch-file: --type: --subresource: -c: --containers: --min: --max: --cpu-percent: --resource-version: --save-config --record --overwrite --skip-wait-for-delete-timeout:"
	helmOptions  = "!cobra -n: --namespace: --kube-context: -i --install -f: --values: --set: --set-string: --set-file: --set-json: --version: --timeout: --wait --wait-for-jobs --atomic --reuse-values --reset-values --reset-then-reuse-values --force --create-namespace --cleanup-on-fail --history-max: --description: --no-hooks --keep-history --cascade: --ignore-not-found --dry-run? --debug --repo: --devel --skip-crds --recreate-pods --username: --install-crds"
	boxOptions   = "!cobra --context: -f --force -v --volumes -l --link -t: --time: --timeout: -s: --signal: -a --all -i --ignore --depend -d --detach --remove-orphans --rmi: -p: --project-name: --file: --profile:"
	unitOptions  = "--user --system --now --no-block --no-pager -q --quiet -f --force -a --all -l --full --no-ask-password --no-wall --no-legend --runtime --job-mode: -s: --signal: --kill-who: --kill-whom: -i --ignore-inhibitors --wait --message:"
	aptOptions   = "-yqVf -qq --yes --assume-yes --quiet --no-install-recommends --purge --allow-downgrades --allow-remove-essential --allow-change-held-packages --autoremove --auto-remove --reinstall --fix-broken --fix-missing --only-upgrade --no-install-suggests -m -u"
	dnfOptions   = "-yqC --assumeyes --quiet --cacheonly --setopt: --enablerepo: --disablerepo: --allowerasing --nobest --best --skip-broken --refresh --noautoremove --security"
	gitOptions   = "!first -C: --no-pager"
	tfOptions    = "!go -auto-approve -input? -lock? -lock-timeout: -no-color -compact-warnings -parallelism: -refresh? -refresh-only -target: -var: -var-file: -replace: -destroy -json"
	psqlOptions  = "-XwqAtx1 -h: -p: -U: -d: -c: -v: --host: --port: --username: --dbname: --command: --no-psqlrc --no-password --quiet --single-transaction --set:"
	mysqlOptions = "-BNvstf -h: -P: -u: -D: -e: -S: --host: --port: --user: --database: --execute: --socket: --batch --skip-column-names --force --verbose"
)

// lookup returns what is known of a program.
func lookup(name string) (program, bool) {
	p, ok := programs()[argv.Program(name)]
	return p, ok
}

// programs is the table. A program that is not in it is not spoken of.
func programs() map[string]program {
	remove := program{options: "-rRfidIvP --recursive --force --dir --verbose --interactive? --one-file-system --preserve-root? --no-preserve-root", globs: true, say: sayRemove}
	shred := program{options: "-fuvxz -n: -s: --force --remove? --verbose --exact --zero --iterations: --size: --random-source:", globs: true, say: sayRemove}
	rmdir := program{options: "-pv --parents --verbose --ignore-fail-on-non-empty", globs: true, say: sayRemoveDir}
	move := program{options: copyOptions, say: sayCopy}
	install := program{options: "-bcCdDpsTv -m: -o: -g: -t: -S: --backup? --mode: --owner: --group: --directory --target-directory: --no-target-directory --compare --preserve-timestamps --strip --verbose", say: sayCopy}
	mode := program{options: "!raw", globs: true, say: sayMode}
	disk := program{options: "!raw", say: sayFormat}
	machine := program{options: "!raw", say: sayMachine}
	rules := program{options: "!raw", say: sayIptables}
	box := program{options: boxOptions, own: true, say: sayContainers}
	apt := program{options: aptOptions, say: sayApt}
	dnf := program{options: dnfOptions, say: sayDnf}
	tf := program{options: tfOptions, own: true, say: sayTerraform}
	mysql := program{options: mysqlOptions, own: true, say: sayMysql}
	return map[string]program{
		"rm": remove, "unlink": {globs: true, say: sayRemove}, "shred": shred, "rmdir": rmdir,
		"mv": move, "cp": move, "install": install,
		"chmod": mode, "chown": mode, "chgrp": mode,
		"truncate": {options: "-c -o -s: --no-create --io-blocks --size:", say: sayTruncate},
		"tee":      {options: "-aip --append --ignore-interrupts", say: sayTee},
		"dd":       {options: "!raw", say: sayDD},
		"mkfs":     disk, "mkfs.ext2": disk, "mkfs.ext3": disk, "mkfs.ext4": disk, "mkfs.xfs": disk, "mkfs.btrfs": disk, "mkfs.vfat": disk, "mkfs.f2fs": disk,
		"mke2fs": disk, "mkswap": disk, "wipefs": disk, "blkdiscard": disk, "pvcreate": disk, "sgdisk": disk, "parted": disk,

		"systemctl": {options: unitOptions, say: sayUnits},
		"service":   {say: sayService},
		"kill":      {options: "!raw", say: sayKill}, "pkill": {options: "!raw", say: sayMatch}, "killall": {options: "!raw", say: sayKillAll},
		"reboot": machine, "shutdown": machine, "poweroff": machine, "halt": machine, "init": machine, "telinit": machine,
		"crontab":  {options: "-ri", own: true, say: sayCrontab},
		"iptables": rules, "ip6tables": rules,
		"nft": {options: "-f: -i", say: sayNft},

		"kubectl": {options: kubeOptions, own: true, say: sayKubectl},
		"helm":    {options: helmOptions, own: true, say: sayHelm},
		"docker":  box, "podman": box, "nerdctl": box,
		"git": {options: gitOptions, own: true, say: sayGit},
		"apt": apt, "apt-get": apt,
		"dnf": dnf, "yum": dnf, "microdnf": dnf,
		"tofu": tf,
		"psql": {options: psqlOptions, own: true, say: sayPsql}, "mysql": mysql, "mariadb": mysql,
	}
}
