package impact

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"countersign/approvals/argv"

	"go.yaml.in/yaml/v3"
)

// sayKubectl speaks of kubectl's changes to a cluster.
func sayKubectl(ctx context.Context, p *probe, c call) {
	if how, _ := c.Value("--dry-run"); c.Has("--dry-run") && how != "none" {
		return
	}
	scope := repeatOptions(c.Args, "-n", "--namespace", "--context", "--cluster")
	said := len(p.lines)
	switch verb, things := c.Operand(0), c.Texts(1); verb {
	case "delete":
		p.sayDelete(ctx, c, scope, things)
	case "scale":
		to, ok := c.Value("--replicas")
		if list, found := p.objects(ctx, c, scope, things, "NOW:.spec.replicas"); ok && found {
			p.listed(list, "would scale", func(f []string) string { return fmt.Sprintf("%s from %s to %s replicas", object(f), f[3], to) })
		}
	case "rollout":
		if what := c.Operand(1); len(things) > 1 && slices.Contains([]string{"restart", "undo", "pause", "resume"}, what) {
			list, found := p.objects(ctx, c, scope, things[1:], "READY:.status.readyReplicas,WANTED:.spec.replicas")
			if found {
				p.listed(list, "would "+what, func(f []string) string {
					ready := f[3]
					if ready == none {
						ready = "0"
					}
					return fmt.Sprintf("%s (%s of %s ready)", object(f), ready, f[len(f)-1])
				})
			}
			if what == "undo" {
				if rows, ok := p.rows(ctx, "kubectl rollout history"+scope+" "+join(things[1:])); ok {
					p.list(rows[max(len(rows)-maxShown, 0):])
				}
			}
		}
	case "cordon", "uncordon", "drain":
		p.sayNodes(ctx, c, scope, verb, things)
	case "apply", "create", "replace":
		p.sayManifests(ctx, c, scope, verb)
	}
	if things := changedObjects(c); len(things) > 0 {
		p.sayManager(ctx, scope+repeatOptions(c.Args, "-l", "--selector", "--field-selector", "-A", "--all-namespaces"), things, false)
	}
	if _, given := c.Value("--context"); !given && len(p.lines) > said {
		if rows, ok := p.rows(ctx, "kubectl config current-context"); ok && len(rows) == 1 {
			p.add("in the context %s", show(rows[0]))
		}
	}
}

// none is what kubectl prints for what an object hasn't.
const none = "<none>"

// object names an object of [probe.objects] as kubectl does.
func object(f []string) string {
	name := f[0] + "/" + f[1]
	if f[2] != none {
		name += " in " + f[2]
	}
	return name
}

// listed says what happens to objects. as says a row with at least four columns; others are names.
func (p *probe) listed(list []string, what string, as func(f []string) string) {
	for i, row := range list {
		if f := strings.Fields(row); len(f) > 3 {
			list[i] = as(f)
		}
	}
	switch len(list) {
	case 0:
		p.add("kubectl finds none of the objects that are named")
	case 1:
		p.add("%s %s", what, list[0])
	default:
		p.together(what+" "+count(len(list), "object", "objects"), list)
	}
}

// objects lists what kubectl finds, one object a line: kind, name, namespace and
// further columns.
func (p *probe) objects(ctx context.Context, c call, scope string, things []string, columns string) ([]string, bool) {
	if len(things) == 0 {
		return nil, false
	}
	get := "kubectl get" + scope + repeatOptions(c.Args, "-l", "--selector", "--field-selector", "-A", "--all-namespaces") + " --ignore-not-found"
	all := "KIND:.kind,NAME:.metadata.name,NAMESPACE:.metadata.namespace"
	if columns != "" {
		all += "," + columns
	}
	if list, ok := p.rows(ctx, get+" --no-headers -o custom-columns="+all+" "+join(things)); ok {
		return list, true
	}
	// Of secrets only the names are proven to be harmless.
	return p.rows(ctx, get+" -o name "+join(things))
}

func (p *probe) sayDelete(ctx context.Context, c call, scope string, things []string) {
	if len(c.Values("-f", "--filename", "-k", "--kustomize")) > 0 {
		p.sayManifests(ctx, c, scope, "delete")
		return
	}
	if len(things) == 1 && !strings.Contains(things[0], "/") && !c.Has("-l", "--selector", "--field-selector", "--all") {
		return // it fails
	}
	list, ok := p.objects(ctx, c, scope, things, "SINCE:.metadata.creationTimestamp")
	if !ok {
		return
	}
	p.listed(list, "would delete", func(f []string) string {
		return object(f) + ", created " + strings.Replace(strings.TrimSuffix(f[3], "Z"), "T", " ", 1) + " UTC"
	})
	if kind := things[0]; len(list) > 0 && slices.Contains([]string{"namespace", "namespaces", "ns"}, strings.SplitN(kind, "/", 2)[0]) {
		names := things[1:]
		if _, name, ok := strings.Cut(kind, "/"); ok {
			names = []string{name}
		}
		for _, name := range names[:min(len(names), 3)] {
			if in, ok := p.rows(ctx, "kubectl get all -o name -n "+quoted(name)+repeatOptions(c.Args, "--context", "--cluster")); ok {
				p.add("with all that is in %s, among it %s: %s", show(name), count(len(in), "object", "objects"), some(in))
			}
		}
	}
}

func (p *probe) sayNodes(ctx context.Context, c call, scope, verb string, nodes []string) {
	if len(nodes) == 0 && !c.Has("-l", "--selector") {
		return
	}
	list, ok := p.rows(ctx, "kubectl get nodes --no-headers --ignore-not-found"+scope+repeatOptions(c.Args, "-l", "--selector")+join2(nodes))
	if !ok {
		return
	}
	p.listed(list, "would "+verb, func(f []string) string { return "node " + f[0] + " (" + f[1] + ")" })
	if verb != "drain" {
		return
	}
	for _, n := range nodes[:min(len(nodes), 3)] {
		pods, ok := p.rows(ctx, "kubectl get pods -A -o 'custom-columns=NAMESPACE:.metadata.namespace,NAME:.metadata.name,OWNER:.metadata.ownerReferences[0].kind' --no-headers --field-selector spec.nodeName="+quoted(n)+scope)
		if !ok {
			continue
		}
		var moves []string
		for _, pod := range pods {
			if f := strings.Fields(pod); len(f) == 3 && f[2] != "DaemonSet" && f[2] != "Node" {
				moves = append(moves, f[0]+"/"+f[1])
			}
		}
		p.add("would evict %s from %s: %s", count(len(moves), "pod", "pods"), show(n), some(moves))
	}
}

// sayManifests says what a cluster would do with the objects that files define, or which ones these are.
func (p *probe) sayManifests(ctx context.Context, c call, scope, verb string) {
	files := repeatOptions(c.Args, "-f", "--filename", "-k", "--kustomize", "-R", "--recursive")
	if files == "" {
		return
	}
	if p.simulateManifests(ctx, c, scope, verb) {
		return
	}
	for f := range strings.SplitSeq(strings.Join(c.Values("-f", "--filename"), ","), ",") {
		src, ok := quote(f)
		if f == "" || f == "-" || strings.Contains(f, "://") || !ok {
			continue
		}
		at := p.where(argv.Word{Text: f, Source: src})
		out, ok := p.output(ctx, "test -f "+at+" && head -c 262144 -- "+at) // reading a pipe takes away what waits there
		if !ok {
			continue
		}
		if list := manifest(out); len(list) > 0 {
			p.together(fmt.Sprintf("would %s %s from %s", verb, count(len(list), "object", "objects"), show(f)), list)
		}
	}
}

// manifest lists the objects of a manifest, as far as it can be read.
func manifest(text string) []string {
	var list []string
	dec := yaml.NewDecoder(strings.NewReader(text))
	for len(list) < 1000 {
		var doc struct {
			Kind     string `yaml:"kind"`
			Metadata struct {
				Name      string `yaml:"name"`
				Namespace string `yaml:"namespace"`
			} `yaml:"metadata"`
		}
		err := dec.Decode(&doc)
		if err == io.EOF { //nolint:errorlint // the decoder returns it bare
			break
		}
		if err != nil {
			if len(list) > 0 {
				list = append(list, "and what could not be read")
			}
			break
		}
		if doc.Kind != "" {
			o := show(doc.Kind) + " " + show(doc.Metadata.Name)
			if doc.Metadata.Namespace != "" {
				o += " in " + show(doc.Metadata.Namespace)
			}
			list = append(list, o)
		}
	}
	return list
}

// in goes to the directory of the action, for programs that look around there.
func (p *probe) in() string {
	if !p.rooted {
		return ""
	}
	return "cd -- " + quoted(p.dir+"/") + " && "
}

// sayHelm speaks of helm's changes to a release.
func sayHelm(ctx context.Context, p *probe, c call) {
	release := c.Operand(1)
	if _, dry := c.Value("--dry-run"); dry || c.Has("--dry-run") || release == "" || strings.HasPrefix(release, "-") {
		return
	}
	scope := repeatOptions(c.Args, "-n", "--namespace", "--kube-context")
	verb := c.Operand(0)
	switch verb {
	case "upgrade", "rollback", "uninstall", "delete", "del", "un":
	default:
		return
	}
	if verb != "upgrade" && verb != "rollback" && len(c.Operands) > 2 {
		return
	}
	kube := repeatOptions(c.Args, "-n", "--namespace")
	if context, ok := c.Value("--kube-context"); ok {
		kube += " --context=" + quoted(context)
	}
	defer p.sayManager(ctx, kube+" -l "+quoted("app.kubernetes.io/instance="+release), []string{"deployments,statefulsets,daemonsets"}, true)
	list, ok := p.rows(ctx, "helm history "+quoted(release)+" --max 4"+scope)
	switch {
	case ok && len(list) > 1:
		for i := range list {
			list[i] = strings.Join(strings.Fields(list[i]), " ")
		}
		if verb == "rollback" && c.Operand(2) != "" && c.Operand(2) != "0" {
			p.together(fmt.Sprintf("would go back to revision %s; the newest ones", show(c.Operand(2))), list)
		} else {
			p.together(fmt.Sprintf("revisions of %s, the last is in force", show(release)), list)
		}
	case verb == "upgrade" && c.Has("-i", "--install"):
		return // that it isn't there can't be told from an error
	}
	if verb != "upgrade" && verb != "rollback" {
		out, ok := p.output(ctx, "helm status "+quoted(release)+scope)
		if !ok {
			return
		}
		for _, row := range rows(out) {
			for _, k := range []string{"LAST DEPLOYED:", "NAMESPACE:", "STATUS:"} {
				if strings.HasPrefix(row, k) {
					p.add("%s", row)
				}
			}
		}
	}
}

// sayContainers speaks of docker, podman and nerdctl.
func sayContainers(ctx context.Context, p *probe, c call) {
	verb, names := c.Operand(0), c.Texts(1)
	if verb == "compose" {
		p.sayCompose(ctx, c)
		return
	}
	if verb == "container" && len(names) > 0 {
		verb, names = names[0], names[1:]
	}
	if !slices.Contains([]string{"stop", "rm", "restart", "kill", "start", "pause", "unpause", "remove"}, verb) || len(names) == 0 || c.Has("-a", "--all") {
		return
	}
	out, exit, done := p.read(ctx, c.name+repeatOptions(c.Args, "--context")+" container inspect --format '{{.Name}}|{{.State.Status}}|{{.Config.Image}}|{{.State.StartedAt}}|{{.HostConfig.RestartPolicy.Name}}' "+join(names))
	if !done || exit != 0 && out == "" {
		return
	}
	said := len(p.lines)
	for i, row := range rows(out) {
		f := strings.Split(row, "|")
		if len(f) != 5 {
			continue
		}
		if i == maxShown {
			p.add("and other containers")
			break
		}
		since := ""
		if f[1] == "running" {
			since = " since " + f[3][:min(len(f[3]), 19)]
		}
		line := fmt.Sprintf("%s is %s%s, image %s", show(strings.TrimPrefix(f[0], "/")), show(f[1]), since, show(f[2]))
		if f[4] != "" && f[4] != "no" {
			line += ", restarted by policy " + show(f[4])
		}
		p.add("%s", line)
	}
	if len(p.lines) > said && c.Has("-v", "--volumes") && (verb == "rm" || verb == "remove") {
		p.add("the anonymous volumes would go, too")
	}
}

func (p *probe) sayCompose(ctx context.Context, c call) {
	verb, names := c.Operand(1), c.Texts(2)
	if !slices.Contains([]string{"down", "stop", "restart", "rm", "kill"}, verb) || c.name == "nerdctl" || c.Has("-f") {
		return // -f is a file before the verb, and force after it
	}
	if verb == "down" {
		names = nil
	}
	list, ok := p.rows(ctx, p.in()+c.name+repeatOptions(c.Args, "--context")+" compose"+repeatOptions(c.Args, "--file", "-p", "--project-name", "--profile")+" ps -a"+join2(names))
	if !ok || len(list) == 0 {
		return
	}
	for i := range list {
		list[i] = strings.Join(strings.Fields(list[i]), " ")
	}
	what := verb
	if verb == "down" {
		what = "take down"
	}
	p.together(fmt.Sprintf("would %s %s of the project", what, count(len(list)-1, "container", "containers")), list[1:])
	if verb == "down" && c.Has("-v", "--volumes") {
		p.add("the volumes of the project would go, too")
	}
}

// gitRead is git with everything turned off that a repository's configuration
// could make it run.
const gitRead = "git --no-optional-locks --no-pager --no-lazy-fetch -c core.fsmonitor=false -c diff.external= -c core.hooksPath=/dev/null -c log.showSignature=false -c diff.submodule=short"

// revision is a name of a commit without an option's dash or a pathspec's magic.
var revision = regexp.MustCompile(`^[A-Za-z0-9_@][A-Za-z0-9_./@{}~^-]*$`)

// sayGit speaks of commits that would go somewhere, or go away. What lies in the
// working tree is not looked at: that runs the repository's own filters.
func sayGit(ctx context.Context, p *probe, c call) {
	at := p.dir + "/"
	if dirs := c.Values("-C"); len(dirs) > 0 {
		if len(dirs) > 1 || !strings.HasPrefix(dirs[0], "/") {
			return
		}
		at = dirs[0]
	} else if !p.rooted {
		return
	}
	log := func(what, from, to string) {
		if !revision.MatchString(from) || to != "" && !revision.MatchString(to) || strings.Contains(from+to, "..") {
			return
		}
		list, ok := p.rows(ctx, gitRead+" -C "+quoted(at)+" log --oneline --no-color --no-decorate --no-ext-diff --no-textconv -n 100 "+quoted(from+".."+to))
		if !ok {
			return
		}
		if len(list) == 0 {
			p.add("%s no commits, as far as this clone knows", what)
			return
		}
		n := count(len(list), "commit", "commits")
		if len(list) == 100 {
			n = "100 commits or more"
		}
		p.together(what+" "+n, list)
	}
	verb := c.Operand(0)
	if len(c.Operands) == 0 {
		return
	}
	switch verb {
	case "push":
		a, ok := argv.ParseArgs("-fuqv --force --force-with-lease? --set-upstream --no-verify --quiet --verbose --force-if-includes --progress", c.Operands[1:])
		if !ok || len(a.Operands) > 2 {
			return
		}
		here, there := "HEAD", "@{u}"
		if len(a.Operands) == 2 {
			branch := strings.TrimPrefix(a.Operand(1), "+")
			if branch == "HEAD" || strings.Contains(branch, ":") || strings.HasPrefix(branch, "refs/") {
				return
			}
			here, there = branch, "refs/remotes/"+a.Operand(0)+"/"+branch
		} else if len(a.Operands) == 1 {
			return // which branch it goes to is a setting
		}
		log("would push", there, here)
		if a.Has("-f", "--force", "--force-with-lease") || strings.HasPrefix(a.Operand(1), "+") {
			log("would drop from the remote", here, there)
		}
	case "reset":
		a, ok := argv.ParseArgs("-q --quiet --hard", c.Operands[1:])
		if !ok || !a.Has("--hard") || len(a.Operands) > 1 {
			return
		}
		if to := a.Operand(0); to != "" && to != "HEAD" {
			log("would leave behind", to, "HEAD")
		}
		if list, ok := p.rows(ctx, gitRead+" -C "+quoted(at)+" diff --cached --name-only --no-color --no-ext-diff --no-textconv"); ok && len(list) > 0 {
			p.add("would undo what is staged in %s: %s", count(len(list), "file", "files"), some(list))
		}
		p.add("changes that are not staged would go, too; they were not looked at")
	}
}

// sayApt speaks of packages: of what is there, since even apt-get's simulation
// writes a log.
func sayApt(ctx context.Context, p *probe, c call) {
	names, verb := c.Texts(1), c.Operand(0)
	if slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, "-") || strings.Contains(n, "/") }) {
		return
	}
	if slices.Contains([]string{"install", "remove", "purge", "autoremove", "upgrade", "dist-upgrade", "full-upgrade"}, verb) && simulateApt(ctx, p, c) {
		return
	}
	if len(names) == 0 || slices.ContainsFunc(names, func(n string) bool { return strings.ContainsAny(n, ":=") }) {
		return
	}
	if !slices.Contains([]string{"install", "remove", "purge", "autoremove"}, verb) {
		return
	}
	out, exit, done := p.read(ctx, "dpkg-query -W "+join(names))
	if !done || exit > 1 {
		return
	}
	list := rows(out)
	for i, row := range list {
		list[i] = strings.Join(strings.Fields(row), " ")
	}
	if len(list) == 0 {
		p.add("now there: none of these packages")
		return
	}
	p.add("now there: %s", some(list))
}

// sayDnf speaks of packages of dnf and yum, which have no simulation that is
// proven: of what is there.
func sayDnf(ctx context.Context, p *probe, c call) {
	names := c.Texts(1)
	if len(names) == 0 || slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, "-") || strings.Contains(n, "://") }) {
		return
	}
	switch c.Operand(0) {
	case "install", "update", "upgrade":
		if c.name != "dnf" {
			return
		}
		if list, ok := p.rows(ctx, "dnf -q -C list "+join(names)); ok {
			p.list(list)
		}
	case "remove", "erase", "autoremove":
		out, exit, done := p.read(ctx, "rpm -q "+join(names))
		if !done || exit > len(names) {
			return
		}
		if list := rows(out); len(list) > 0 {
			p.add("now there: %s", some(list))
		}
		for _, n := range names[:min(len(names), 3)] {
			if list, ok := p.rows(ctx, "rpm -q --whatrequires "+quoted(n)); ok && len(list) > 0 {
				p.add("required by: %s", some(list))
			}
		}
	}
}

// sayTerraform speaks of tofu; terraform itself reports to its maker on every run.
func sayTerraform(ctx context.Context, p *probe, c call) {
	verb := c.Operand(0)
	if verb != "apply" && verb != "destroy" || !p.rooted {
		return
	}
	list, ok := p.rows(ctx, p.in()+c.name+" state list")
	if !ok {
		return
	}
	if verb == "apply" && !c.Has("-destroy") {
		p.add("the state holds %s now", count(len(list), "resource", "resources"))
		return
	}
	if t := c.Values("-target"); len(t) > 0 {
		p.add("would destroy %s and what depends on them; the state holds %s", some(t), count(len(list), "resource", "resources"))
		return
	}
	p.together("would destroy "+count(len(list), "resource", "resources"), list)
}

// change is an SQL statement that takes rows of one table; its name is folded to
// lower case by PostgreSQL and kept by MySQL.
var change = regexp.MustCompile(`(?is)^\s*(delete\s+from|update|truncate(?:\s+table)?|drop\s+table(?:\s+if\s+exists)?)\s+(?:([a-z_][a-z0-9_]*)\.)?([a-z_][a-z0-9_]*)\b([^;]*);?\s*$`)

// statement reads the one statement of a call; ok is false for any other form.
func statement(sql []string) (verb, schema, table, rest string, ok bool) {
	if len(sql) != 1 {
		return "", "", "", "", false
	}
	m := change.FindStringSubmatch(sql[0])
	if m == nil || strings.EqualFold(m[3], "only") || strings.HasPrefix(m[4], ".") {
		return "", "", "", "", false
	}
	verb = strings.ToLower(strings.Fields(m[1])[0])
	if (verb == "truncate" || verb == "drop") && strings.Contains(m[4], ",") {
		return "", "", "", "", false // several tables
	}
	return verb, m[2], m[3], m[4], true
}

// sayTable says how large a table is, by the statistics of the server.
func (p *probe) sayTable(verb, table, rest, about string) {
	if about != "" {
		p.add("the table %s has %s by the server's statistics", show(table), show(about))
	}
	if (verb == "delete" || verb == "update") && !strings.Contains(strings.ToLower(rest), "where") {
		p.add("no WHERE: takes every row of %s", show(table))
	}
}

// sayPsql speaks of rows that psql would take.
func sayPsql(ctx context.Context, p *probe, c call) {
	verb, schema, table, rest, ok := statement(c.Values("-c", "--command"))
	if !ok || len(c.Operands) > 2 {
		return
	}
	sql := "select reltuples, pg_size_pretty(pg_total_relation_size(oid)) from pg_class where relkind = 'r' and relname = '" + strings.ToLower(table) + "'"
	if schema != "" {
		sql += " and relnamespace in (select oid from pg_namespace where nspname = '" + strings.ToLower(schema) + "')"
	}
	about := ""
	list, found := p.rows(ctx, "psql -X -w -A -t"+repeatOptions(c.Args, "-h", "-p", "-U", "-d", "--host", "--port", "--username", "--dbname")+" -c "+quoted(sql)+join2(c.Texts(0)))
	if found && len(list) == 1 {
		n, room, _ := strings.Cut(list[0], "|")
		if f, err := strconv.ParseFloat(n, 64); err == nil && f >= 0 && f < 1e15 { // less: nobody has counted
			about = "about " + count(int(f), "row", "rows") + ", " + room
		}
	}
	p.sayTable(verb, table, rest, about)
}

// sayMysql speaks of rows that mysql would take.
func sayMysql(ctx context.Context, p *probe, c call) {
	verb, schema, table, rest, ok := statement(c.Values("-e", "--execute"))
	if !ok || len(c.Operands) > 1 {
		return
	}
	where := "table_schema = database()"
	if schema != "" {
		where = "table_schema = '" + schema + "'"
	}
	about := ""
	list, found := p.rows(ctx, c.name+" -B -N"+repeatOptions(c.Args, "-h", "-P", "-u", "-D", "-S", "--host", "--port", "--user", "--database", "--socket")+
		" -e "+quoted("select table_rows, data_length from information_schema.tables where table_name = '"+table+"' and "+where)+join2(c.Texts(0)))
	if found && len(list) == 1 {
		if f := strings.Fields(list[0]); len(f) == 2 {
			about = "about " + f[0] + " rows, " + f[1] + " bytes"
		}
	}
	p.sayTable(verb, table, rest, about)
}
