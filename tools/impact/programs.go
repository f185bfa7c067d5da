package impact

import "context"

// program describes a program that can be previewed.
type program struct {
	// options are all options that its function understands; see parseArgs. With any other, there
	// is no preview.
	options string
	// globs allows patterns among the operands.
	globs bool
	// accountBound means that its reads depend on the account (its crontab, its kubeconfig), so
	// they say nothing about a command behind sudo.
	accountBound bool
	// preview adds lines, from proven reads only.
	preview func(ctx context.Context, p *probe, c call)
}

const (
	copyOptions  = "-abdfHilLnpPrRsTuvxZ -S: -t: --archive --backup? --force --interactive --no-clobber --recursive --verbose --update? --preserve? --no-preserve: --parents --target-directory: --no-target-directory --suffix: --one-file-system --sparse: --reflink? --dereference --no-dereference --strip-trailing-slashes --attributes-only --remove-destination"
	modeOptions  = "-cfvRHLP --changes --silent --quiet --verbose --recursive --reference: --dereference --no-dereference -h --preserve-root --no-preserve-root --from:"
	kubeScope    = "-n: --namespace: --context: --cluster: "
	kubeOptions  = "!cobra " + kubeScope + "-l: --selector: --field-selector: -A --all-namespaces --all -f: --filename: -k: --kustomize: -R --recursive --force --grace-period: --now --wait --timeout: --ignore-not-found --cascade? --dry-run? -o: --output: --replicas: --current-replicas: --to-revision: --request-timeout: --delete-emptydir-data --delete-local-data --ignore-daemonsets --disable-eviction --pod-selector: --server-side --force-conflicts --prune --validate? --field-manager: --save-config --record --overwrite --skip-wait-for-delete-timeout:"
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

// lookup returns the entry of a program.
func lookup(name string) (program, bool) {
	p, ok := programs()[baseName(name)]
	return p, ok
}

// programs is the table. Other programs are not previewed.
func programs() map[string]program {
	remove := program{options: "-rRfidIvP --recursive --force --dir --verbose --interactive? --one-file-system --preserve-root? --no-preserve-root", globs: true, preview: previewRemove}
	shred := program{options: "-fuvxz -n: -s: --force --remove? --verbose --exact --zero --iterations: --size: --random-source:", globs: true, preview: previewRemove}
	rmdir := program{options: "-pv --parents --verbose --ignore-fail-on-non-empty", globs: true, preview: previewRemoveDir}
	move := program{options: copyOptions, preview: previewCopy}
	install := program{options: "-bcCdDpsTv -m: -o: -g: -t: -S: --backup? --mode: --owner: --group: --directory --target-directory: --no-target-directory --compare --preserve-timestamps --strip --verbose", preview: previewCopy}
	mode := program{options: "!raw", globs: true, preview: previewMode}
	disk := program{options: "!raw", preview: previewFormat}
	machine := program{options: "!raw", preview: previewMachine}
	rules := program{options: "!raw", preview: previewIptables}
	box := program{options: boxOptions, accountBound: true, preview: previewContainers}
	apt := program{options: aptOptions, preview: previewApt}
	dnf := program{options: dnfOptions, preview: previewDnf}
	tf := program{options: tfOptions, accountBound: true, preview: previewTerraform}
	mysql := program{options: mysqlOptions, accountBound: true, preview: previewMysql}
	return map[string]program{
		"rm": remove, "unlink": {globs: true, preview: previewRemove}, "shred": shred, "rmdir": rmdir,
		"mv": move, "cp": move, "install": install,
		"chmod": mode, "chown": mode, "chgrp": mode,
		"truncate": {options: "-c -o -s: --no-create --io-blocks --size:", preview: previewTruncate},
		"tee":      {options: "-aip --append --ignore-interrupts", preview: previewTee},
		"dd":       {options: "!raw", preview: previewDD},
		"mkfs":     disk, "mkfs.ext2": disk, "mkfs.ext3": disk, "mkfs.ext4": disk, "mkfs.xfs": disk, "mkfs.btrfs": disk, "mkfs.vfat": disk, "mkfs.f2fs": disk,
		"mke2fs": disk, "mkswap": disk, "wipefs": disk, "blkdiscard": disk, "pvcreate": disk, "sgdisk": disk, "parted": disk,

		"systemctl": {options: unitOptions, preview: previewUnits},
		"service":   {preview: previewService},
		"kill":      {options: "!raw", preview: previewKill}, "pkill": {options: "!raw", preview: previewMatch}, "killall": {options: "!raw", preview: previewKillAll},
		"reboot": machine, "shutdown": machine, "poweroff": machine, "halt": machine, "init": machine, "telinit": machine,
		"crontab":  {options: "-ri", accountBound: true, preview: previewCrontab},
		"iptables": rules, "ip6tables": rules,
		"nft": {options: "-f: -i", preview: previewNft},

		"kubectl": {options: kubeOptions, accountBound: true, preview: previewKubectl},
		"helm":    {options: helmOptions, accountBound: true, preview: previewHelm},
		"docker":  box, "podman": box, "nerdctl": box,
		"git": {options: gitOptions, accountBound: true, preview: previewGit},
		"apt": apt, "apt-get": apt,
		"dnf": dnf, "yum": dnf, "microdnf": dnf,
		"tofu": tf,
		"psql": {options: psqlOptions, accountBound: true, preview: previewPsql}, "mysql": mysql, "mariadb": mysql,
	}
}
