package risk

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// checkKV refuses keys that name secrets.
func checkKV(j *judge, c *call) {
	for _, w := range c.operands {
		lower := strings.ToLower(w.text)
		for _, s := range []string{"secret", "password", "token", "credential", "private", "apikey", "api_key"} {
			if w.kind != wordLit || strings.Contains(lower, s) {
				j.add(High, EffectSecrets, "`%s` would show the value of %s, a secret by its name", c.spec.name, w.text)
				return
			}
		}
	}
}

var psqlMeta = regexp.MustCompile(`^\\(conninfo|l|dt|di|dv|ds|dn|du|df|dx|db|dp|d)(S|\+|S\+)?( [A-Za-z_][A-Za-z0-9_.]*)?$`)

// With these variables psql runs no file of the account, and PostgreSQL takes functions and operators from
// its own catalogue. Otherwise those of whoever owns the database can come first, with the rights of
// whoever asks.
const (
	psqlStart   = "PSQLRC=/dev/null"
	psqlQuery   = "PGOPTIONS=-c search_path=pg_catalog -c default_transaction_read_only=on"
	psqlVisible = `PGOPTIONS=-c search_path=pg_catalog,"$user",public -c default_transaction_read_only=on`
)

// unqualified matches a table in a string that PostgreSQL would look for in its catalogue only.
var unqualified = regexp.MustCompile(`(?i)pg_(total_relation|relation|table|indexes)_size\s*\(\s*'[^'.]*'|'[^'.]*'\s*::\s*reg`)

// addEnviron records what the environment of a program must have, and adds an issue if nobody can put it there.
func (j *judge) addEnviron(tool string, vars ...string) {
	for _, v := range vars {
		name, _, _ := strings.Cut(v, "=")
		switch {
		case !j.environs || j.remote:
			j.addPlaceIssue(Medium, EffectExec, "`%s` would run functions and operators of whoever owns the database: only the bot's own reads keep it from that", tool)
			return
		case slices.Contains(j.environ, v):
		case slices.ContainsFunc(j.environ, func(s string) bool { return strings.HasPrefix(s, name+"=") }):
			j.add(Medium, EffectUnknown, "these two `%s` calls need different settings: run them as separate commands", tool)
			return
		default:
			j.environ = append(j.environ, v)
		}
	}
}

func checkPsql(j *judge, c *call) {
	if c.has("-V", "--version") && !c.has("-c", "--command") {
		return
	}
	options := psqlVisible
	for _, f := range c.flags {
		if (f.name == "-c" || f.name == "--command") && !psqlMeta.MatchString(f.value.text) {
			options = psqlQuery
		}
	}
	j.addEnviron("psql", psqlStart, options)
	if c.has("-l", "--list") && !c.has("-c", "--command") {
		return
	}
	if !c.has("-c", "--command") {
		j.add(Low, EffectInteractive, "`psql` without a command opens its own prompt or runs what it is given")
		return
	}
	for _, f := range c.flags {
		if f.name != "-c" && f.name != "--command" {
			continue
		}
		if f.value.kind != wordLit {
			j.add(Medium, EffectUnknown, "the SQL of `psql` is only known when it runs")
			return
		}
		if psqlMeta.MatchString(f.value.text) {
			if options == psqlQuery {
				j.add(Low, EffectUnknown, "`%s` finds nothing beside a query, which only looks into the catalogue: run it alone", f.value.text)
				return
			}
			continue
		}
		if unqualified.MatchString(f.value.text) {
			j.add(Low, EffectUnknown, "the SQL of `psql` names a table without its schema: write 'public.NAME'")
			return
		}
		if why := sqlReads(f.value.text, pgSources); why != "" {
			j.sqlIssue("psql", f.value.text, why)
			return
		}
	}
}

func checkMysql(j *judge, c *call) {
	if c.has("-V", "--version") && !c.has("-e", "--execute") {
		return
	}
	if !c.has("-e", "--execute") {
		j.add(Low, EffectInteractive, "`%s` without a statement opens its own prompt or runs what it is given", c.root.name)
		return
	}
	for _, f := range c.flags {
		if f.name != "-e" && f.name != "--execute" {
			continue
		}
		if f.value.kind != wordLit {
			j.add(Medium, EffectUnknown, "the SQL of `%s` is only known when it runs", c.root.name)
			return
		}
		if why := sqlReads(f.value.text, mySources); why != "" {
			j.sqlIssue(c.root.name, f.value.text, why)
			return
		}
	}
}

// checkContainerTop refuses a column of ps that shows environments.
func checkContainerTop(j *judge, c *call) {
	if v, ok := c.value("-o"); ok && strings.Contains(strings.ToLower(v), "env") {
		j.add(High, EffectSecrets, "`%s top` with `%s` shows the environments of processes, where secrets are kept", c.root.name, v)
	}
}

var sqliteMeta = regexp.MustCompile(`^\.(tables|schema|indexes|indices|databases)( [A-Za-z0-9_]+)?$`)

// checkSqlite proves reads of the schema of a file that is opened read-only. A view in the file could
// run functions, so no other table is allowed.
func checkSqlite(j *judge, c *call) {
	if c.has("-version", "--version") && len(c.operands) == 0 {
		return
	}
	if !c.has("-readonly", "--readonly") {
		j.add(Low, EffectWrite, "`sqlite3` without -readonly may write to the file or create it")
		return
	}
	if len(c.operands) < 2 {
		j.add(Low, EffectInteractive, "`sqlite3` without a statement opens its own prompt or runs what it is given")
		return
	}
	master := func(name string) bool {
		return slices.Contains([]string{"sqlite_master", "sqlite_schema", "sqlite_sequence", "sqlite_stat1"}, name)
	}
	for _, w := range c.operands[1:] {
		if w.kind == wordLit && sqliteMeta.MatchString(w.text) {
			continue
		}
		if why := sqlReads(w.text, master); w.kind != wordLit || why != "" {
			j.sqlIssue("sqlite3", w.text, why)
			return
		}
	}
}

// sqlIssue adds why SQL is not proven, with a level by its verbs.
func (j *judge) sqlIssue(tool, sql, why string) {
	upper := strings.ToUpper(sql)
	for _, v := range []string{"DROP ", "TRUNCATE", "DELETE ", "SHUTDOWN"} {
		if strings.Contains(upper, v) {
			j.add(High, EffectDelete, "the SQL of `%s` removes data (%s)", tool, strings.TrimSpace(v))
		}
	}
	for _, v := range []string{"INSERT ", "UPDATE ", "ALTER ", "CREATE ", "GRANT ", "COPY ", "CALL ", "KILL"} {
		if strings.Contains(upper, v) {
			j.add(Medium, EffectWrite, "the SQL of `%s` changes data or settings (%s)", tool, strings.TrimSpace(v))
		}
	}
	j.add(Medium, EffectUnknown, "the SQL of `%s` is not proven to only read: %s", tool, why)
}

// sqlFunctions are functions without side effects; a word before "(" must be one.
var sqlFunctions = strings.Fields(`count sum avg min max coalesce nullif greatest least now round floor ceil abs lower upper length char_length trim substring left right concat concat_ws
 date_trunc extract age to_char date time timestamp date_part date_format timestampdiff datediff unix_timestamp from_unixtime sec_to_time version current_database current_schema current_user database user
 pg_size_pretty pg_database_size pg_total_relation_size pg_relation_size pg_table_size pg_indexes_size pg_is_in_recovery pg_last_wal_receive_lsn
 pg_last_wal_replay_lsn pg_current_wal_lsn pg_wal_lsn_diff pg_postmaster_start_time pg_last_xact_replay_timestamp pg_blocking_pids pg_backend_pid pg_conf_load_time
 inet_server_addr inet_server_port txid_current_if_assigned row_number rank array_agg string_agg array_length cardinality unnest if ifnull isnull format cast over filter
 in and or not where from as exists join on select any all by when then else union having using values interval distinct`)

// sqlForbidden are words that may not occur outside strings.
var sqlForbidden = strings.Fields(`into outfile dumpfile update insert delete drop alter create truncate grant revoke call do set copy execute prepare handler load lock
 analyze vacuum listen notify reset merge replace import declare begin commit rollback kill shutdown flush procedure function share
 pg_shadow pg_authid pg_user_mapping pg_user_mappings authentication_string rolpassword passwd password pg_hba_file_rules pg_largeobject mysql sleep benchmark
 grants primary_conninfo ssl_passphrase_command archive_command restore_command`)

// pgCatalog are the views and tables of PostgreSQL's catalogue without passwords. PostgreSQL looks up
// names there first, so nobody can replace one with a view that runs functions; a name outside the
// catalogue could be such a view. (pg_subscription, pg_authid, pg_user_mappings and pg_file_settings
// hold passwords, pg_statistic and pg_stats rows of tables.)
var pgCatalog = strings.Fields(`pg_aggregate pg_am pg_attribute pg_available_extensions pg_backend_memory_contexts pg_cast pg_class pg_collation pg_config pg_constraint
 pg_conversion pg_cursors pg_database pg_db_role_setting pg_depend pg_description pg_enum pg_event_trigger pg_extension pg_group pg_index pg_indexes pg_inherits
 pg_language pg_locks pg_matviews pg_namespace pg_opclass pg_operator pg_partitioned_table pg_policies pg_policy pg_prepared_xacts pg_proc pg_publication
 pg_publication_tables pg_range pg_replication_origin_status pg_replication_slots pg_rewrite pg_roles pg_rules pg_sequence pg_sequences pg_settings
 pg_shdescription pg_stat_activity pg_stat_all_indexes pg_stat_all_tables pg_stat_archiver pg_stat_bgwriter pg_stat_checkpointer pg_stat_database
 pg_stat_database_conflicts pg_stat_gssapi pg_stat_io pg_stat_progress_analyze pg_stat_progress_basebackup pg_stat_progress_cluster pg_stat_progress_copy
 pg_stat_progress_create_index pg_stat_progress_vacuum pg_stat_replication pg_stat_replication_slots pg_stat_slru pg_stat_ssl pg_stat_subscription
 pg_stat_subscription_stats pg_stat_sys_indexes pg_stat_sys_tables pg_stat_user_functions pg_stat_user_indexes pg_stat_user_tables pg_stat_wal
 pg_stat_wal_receiver pg_stat_xact_all_tables pg_stat_xact_user_tables pg_statio_all_indexes pg_statio_all_sequences pg_statio_all_tables
 pg_statio_sys_tables pg_statio_user_indexes pg_statio_user_sequences pg_statio_user_tables pg_tables pg_tablespace pg_timezone_abbrevs
 pg_timezone_names pg_trigger pg_type pg_user pg_views pg_wait_events`)

// pgSources reports whether PostgreSQL resolves this name in its own catalogue.
func pgSources(name string) bool {
	if rest, ok := strings.CutPrefix(name, "information_schema."); ok {
		return rest != "" && !strings.Contains(rest, ".") && !strings.Contains(rest, "user_mapping") && !strings.Contains(rest, "foreign_server")
	}
	return slices.Contains(pgCatalog, strings.TrimPrefix(name, "pg_catalog."))
}

// mySources reports whether a name is in a schema of MySQL and MariaDB that only the server fills.
var mySources = regexp.MustCompile(`^(information_schema|performance_schema|sys)\.[a-z_0-9]+$`).MatchString

// sqlReads returns why SQL is not proven to only read, or "". It accepts one statement that begins
// with SELECT, SHOW, EXPLAIN SELECT or DESCRIBE, over tables that source accepts: any other name could
// be a view that runs functions.
func sqlReads(q string, source func(string) bool) string {
	q = strings.TrimSuffix(strings.TrimSpace(q), `\G`) // mysql's vertical form
	if strings.ContainsAny(q, "\\`#$\n\r") || strings.Contains(q, "--") || strings.Contains(q, "/*") {
		return "it has quoting, comments or line breaks that are not looked into"
	}
	q = strings.TrimSpace(strings.TrimSuffix(q, ";"))
	words := []string{}
	for i := 0; i < len(q); {
		c := q[i]
		switch {
		case c == '\'' || c == '"':
			end := strings.IndexByte(q[i+1:], c)
			if end < 0 {
				return "a string does not end"
			}
			i += end + 2
			words = append(words, "''") // a string, or a name that is not looked into
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_':
			n := i
			for n < len(q) && (q[n] == '_' || q[n] == '.' || q[n] >= '0' && q[n] <= '9' || q[n] >= 'a' && q[n] <= 'z' || q[n] >= 'A' && q[n] <= 'Z') {
				n++
			}
			words = append(words, strings.ToLower(q[i:n]))
			i = n
		case c == ' ' || c == '\t':
			i++
		case c == '@':
			// @@name is a setting of the server; @name could be assigned to.
			n := i + 2
			for n < len(q) && (q[n] == '_' || q[n] == '.' || q[n] >= '0' && q[n] <= '9' || q[n] >= 'a' && q[n] <= 'z' || q[n] >= 'A' && q[n] <= 'Z') {
				n++
			}
			if !strings.HasPrefix(q[i:], "@@") || n == i+2 {
				return "it uses a variable"
			}
			words = append(words, "0")
			i = n
		case c == ';':
			return "it is more than one statement"
		case c >= '0' && c <= '9':
			n := i
			for n < len(q) && (q[n] >= '0' && q[n] <= '9' || q[n] == '.') {
				n++
			}
			if n < len(q) && (q[n] == '_' || q[n] >= 'a' && q[n] <= 'z' || q[n] >= 'A' && q[n] <= 'Z') {
				return "a number runs into a word"
			}
			words = append(words, "0")
			i = n
		case strings.IndexByte("(),*=<>+-/%:!|.", c) >= 0:
			words = append(words, string(c))
			i++
		default:
			return "it has characters that are not looked into"
		}
	}
	if len(words) == 0 {
		return "it is empty"
	}
	// "show create table" shows a definition.
	if len(words) == 4 && words[0] == "show" && words[1] == "create" && slices.Contains([]string{"table", "view", "database", "schema", "procedure", "function", "trigger", "event"}, words[2]) {
		return ""
	}
	for _, w := range words {
		if slices.Contains(sqlForbidden, w) && (w != "function" || words[0] != "show") {
			return "`" + w + "` can change something or show a secret"
		}
	}
	switch words[0] {
	case "show":
		if slices.Contains(words, "(") || slices.Contains(words, "user") {
			return "this form of SHOW is not known here"
		}
		return ""
	case "describe", "desc":
		if slices.Contains(words, "(") || slices.Contains(words, "select") {
			return "this form of DESCRIBE is not known here"
		}
		return ""
	case "explain":
		if len(words) < 2 || words[1] != "select" {
			return "this form of EXPLAIN is not known here"
		}
		words = words[1:]
	case "select":
	default:
		return "it does not begin with SELECT, SHOW or EXPLAIN SELECT"
	}
	return sqlClauses(words, source)
}

// sqlTypes are the types that a value may be cast to. A user-defined type may check values with
// functions.
var sqlTypes = strings.Fields(`text varchar char name int integer smallint bigint numeric decimal real float double signed unsigned bool boolean date time timestamp
 timestamptz interval oid regclass regtype regproc regnamespace regrole inet cidr json jsonb uuid bytea xid pg_lsn`)

// sqlBeforeText are the words after which a string is not a typed literal.
var sqlBeforeText = strings.Fields(`select where and or not on having by like ilike rlike regexp similar to escape in is between when then else case as date time timestamp
 interval all any distinct limit separator`)

// sqlFrame is one pair of parentheses of a statement.
type sqlFrame struct {
	call     string // the function whose arguments it holds
	from     bool   // in its list of tables
	selected bool   // it holds a query
}

// sqlClauses checks what a SELECT calls and every table that it names. Words that some dialect allows
// as an alias do not end a list of tables.
func sqlClauses(words []string, source func(string) bool) string {
	frames := []sqlFrame{{}}
	table := false // the next word names a table
	for i, w := range words {
		top := &frames[len(frames)-1]
		next, last := "", ""
		if i+1 < len(words) {
			next = words[i+1]
		}
		if i > 0 {
			last = words[i-1]
		}
		if next == "(" && (w[0] >= 'a' && w[0] <= 'z' || w[0] == '_' || w == "''") && !slices.Contains(sqlFunctions, strings.TrimPrefix(w, "pg_catalog.")) {
			return "`" + w + "(...)` is a function that is not known here"
		}
		if table {
			if w != "(" && !source(w) || w == "(" && next != "select" {
				return "`" + w + "` may be a view that runs functions"
			}
			table = false
		}
		if last == ":" && i > 1 && words[i-2] == ":" && !slices.Contains(sqlTypes, strings.TrimPrefix(w, "pg_catalog.")) ||
			w == "as" && top.call == "cast" && !slices.Contains(sqlTypes, next) {
			return "it turns a value into a type that is not known here"
		}
		if w == "''" && last != "" && last[0] >= 'a' && last[0] <= 'z' && !slices.Contains(sqlBeforeText, last) {
			return "`" + last + "` before a string is not known here"
		}
		switch w {
		case "(":
			frames = append(frames, sqlFrame{call: last})
		case ")":
			if len(frames) == 1 {
				return "a parenthesis is missing"
			}
			frames = frames[:len(frames)-1]
		case "table", "straight_join":
			return "`" + w + "` is not known here"
		case "select":
			top.selected, top.from = true, false
		case "where", "group", "having", "order", "limit", "union":
			top.from = false
		case "from":
			if !top.selected && slices.Contains([]string{"extract", "substring", "trim"}, top.call) {
				continue
			}
			top.from, table = true, true
		case "join":
			top.from, table = true, true
		case ",":
			table = top.from
		}
	}
	if table || len(frames) > 1 {
		return "it ends too early"
	}
	return ""
}

// redisReads are the commands that only read keys, values and state.
var redisReads = strings.Fields(`info ping dbsize ttl pttl type exists keys scan sscan hscan zscan strlen llen lrange lindex hlen hkeys hget hgetall hmget hvals hexists
 scard smembers sismember zcard zrange zrevrange zrangebyscore zscore zcount zrank get mget getrange bitcount lastsave role time echo randomkey xlen xrange xrevrange
 memory:usage,stats,doctor slowlog:get,len latency:latest,history,doctor client:list,info,getname,id cluster:info,nodes,slots,shards,myid,keyslot,countkeysinslot
 object:encoding,idletime,refcount,freq xinfo:stream,groups,consumers xpending command:count,info,list pubsub:channels,numsub,numpat
 sentinel:masters,master,replicas,slaves,sentinels,get-master-addr-by-name,ckquorum config:get acl:whoami module:list expiretime pexpiretime`)

// redisSecrets are redis settings that hold secrets.
var redisSecrets = []string{"requirepass", "masterauth", "masteruser", "tls-key-file-pass", "tls-client-key-file-pass", "sentinel-pass", "aclfile"}

func wrapRedis(j *judge, name string, argv []word) {
	j.addNeeds(NeedNet)
	i := 1
	for ; i < len(argv); i++ {
		w := argv[i]
		if w.kind != wordLit {
			break
		}
		if !strings.HasPrefix(w.text, "-") {
			break
		}
		switch t := w.text; t {
		case "--version", "-v":
			if len(argv) == 2 {
				j.prove(name)
				return
			}
			j.add(Low, EffectUnknown, "`redis-cli --version` with more")
			return
		case "--raw", "--no-raw", "--csv", "--json", "-c", "--tls", "--no-auth-warning", "-3", "-2", "-e":
		case "-h", "-p", "-n", "-a", "--user", "--pass", "-r", "-i", "--cacert", "-t":
			i++
			if i >= len(argv) || argv[i].kind != wordLit {
				j.add(Medium, EffectUnknown, "the option `%s` of `redis-cli` has no value that is known", t)
				return
			}
			if t == "-h" && !j.isTrustedHost(argv[i].text) {
				j.add(Medium, EffectEgress, "`redis-cli` talks to %s, a host that is not known to be ours", argv[i].text)
			} else if t == "-h" {
				j.addServices(argv[i].text)
			}
		case "--bigkeys", "--memkeys", "--hotkeys", "--latency", "--latency-history", "--stat", "--scan":
			for k := i + 1; k < len(argv); k += 2 {
				w := argv[k]
				if w.kind != wordLit || !slices.Contains([]string{"--pattern", "--count", "-i", "-h", "-p", "-n"}, w.text) || k+1 >= len(argv) || argv[k+1].kind != wordLit {
					j.add(Medium, EffectUnknown, "`%s %s` with `%s` is not known to only read", name, t, w.text)
					return
				}
				if w.text == "-h" && !j.isTrustedHost(argv[k+1].text) {
					j.add(Medium, EffectEgress, "`%s` talks to %s, a host that is not known to be ours", name, argv[k+1].text)
					return
				} else if w.text == "-h" {
					j.addServices(argv[k+1].text)
				}
			}
			j.prove(name)
			return
		default:
			j.add(Medium, EffectUnknown, "unknown option `%s` of `redis-cli`", t)
			j.judgeTail(argv)
			return
		}
	}
	if i >= len(argv) {
		j.add(Low, EffectInteractive, "`redis-cli` without a command opens its own prompt or runs what it is given")
		return
	}
	if argv[i].kind != wordLit {
		j.add(Medium, EffectUnknown, "the command of `redis-cli` is only known when it runs")
		return
	}
	cmd := strings.ToLower(argv[i].text)
	for _, r := range redisReads {
		head, subs, has := strings.Cut(r, ":")
		if head != cmd {
			continue
		}
		if has {
			if i+1 >= len(argv) || !slices.Contains(strings.Split(subs, ","), strings.ToLower(argv[i+1].text)) || argv[i+1].kind != wordLit {
				break
			}
			if cmd == "config" {
				for _, w := range argv[i+2:] {
					t := strings.ToLower(w.text)
					if w.kind != wordLit || slices.ContainsFunc(redisSecrets, func(s string) bool { ok, err := path.Match(t, s); return ok || err != nil }) {
						j.add(High, EffectSecrets, "`redis-cli config get %s` can show passwords", w.text)
						return
					}
				}
			}
		}
		for _, w := range argv[i:] {
			if w.kind != wordLit {
				j.add(Medium, EffectUnknown, "an argument of `redis-cli` is only known when it runs; quote patterns")
				return
			}
		}
		j.prove(name)
		return
	}
	if !j.addDangers(argv) {
		j.add(Medium, EffectWrite, "`redis-cli %s` is not known to only read", argv[i].text)
	}
}
