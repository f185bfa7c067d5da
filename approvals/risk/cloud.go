package risk

import (
	"regexp"
	"slices"
	"strings"
)

// Cloud command lines: the API, not the program, decides what a call does, so the proof is in the
// operation's name. Options that load files, name other endpoints or print credentials are refused.

// awsServices are the services whose list-* and describe-* calls only read.
var awsServices = strings.Fields(`acm acm-pca amplify apigateway apigatewayv2 application-autoscaling appmesh athena autoscaling backup batch budgets
 ce cloudformation cloudfront cloudtrail cloudwatch codebuild codecommit codedeploy codepipeline cognito-idp configservice datasync dax directconnect
 dms docdb ds dynamodb ec2 ecr ecs efs eks elasticache elasticbeanstalk elb elbv2 emr es events firehose fsx glue guardduty health iam inspector2
 kafka kinesis kms lambda logs mq neptune opensearch opensearchserverless organizations pi ram rds redshift resource-groups route53 route53resolver s3api
 s3control scheduler secretsmanager service-quotas servicediscovery ses sesv2 shield sns sqs ssm stepfunctions storagegateway sts support
 synthetics timestream-write transfer wafv2 workspaces xray`)

// awsGets are other calls that read, and read no secret.
var awsGets = map[string]string{
	"cloudfront":               "get-distribution get-distribution-config get-invalidation",
	"apigateway":               "get-rest-apis get-rest-api get-stages get-stage get-resources get-deployments get-domain-names get-usage-plans",
	"apigatewayv2":             "get-apis get-api get-stages get-routes get-integrations get-deployments get-domain-names",
	"resourcegroupstaggingapi": "get-resources get-tag-keys get-tag-values",
	"ssm":                      "get-command-invocation get-automation-execution get-inventory get-maintenance-window get-connection-status",
	"rds":                      "download-db-log-file-portion",
	"wafv2":                    "get-web-acl get-sampled-requests get-web-acl-for-resource",
	"backup":                   "get-backup-plan get-backup-selection",
	"ses":                      "get-send-statistics get-send-quota get-account-sending-enabled",
	"sesv2":                    "get-account get-email-identity",
	"cloudwatch":               "get-metric-statistics get-metric-data get-dashboard get-insight-rule-report",
	"logs":                     "filter-log-events get-log-events get-query-results get-log-group-fields tail",
	"s3api":                    "head-bucket head-object get-bucket-acl get-bucket-encryption get-bucket-lifecycle-configuration get-bucket-location get-bucket-logging get-bucket-notification-configuration get-bucket-policy get-bucket-policy-status get-bucket-replication get-bucket-tagging get-bucket-versioning get-bucket-website get-public-access-block get-object-tagging get-object-acl",
	"sts":                      "get-caller-identity",
	"iam":                      "get-user get-role get-group get-policy get-policy-version get-role-policy get-user-policy get-group-policy get-account-summary get-account-password-policy get-instance-profile get-access-key-last-used simulate-principal-policy",
	"ce":                       "get-cost-and-usage get-cost-forecast get-dimension-values get-reservation-utilization get-savings-plans-utilization",
	"lambda":                   "get-account-settings get-policy get-alias get-function-concurrency get-function-configuration get-function-url-config get-provisioned-concurrency-config get-event-source-mapping",
	"ecr":                      "get-lifecycle-policy get-repository-policy",
	"route53":                  "get-hosted-zone get-change get-health-check get-health-check-status get-health-check-last-failure-reason get-hosted-zone-count",
	"dynamodb":                 "get-item scan query batch-get-item",
	"sqs":                      "get-queue-attributes get-queue-url",
	"sns":                      "get-topic-attributes get-subscription-attributes",
	"cloudtrail":               "get-trail-status lookup-events get-event-selectors",
	"cloudformation":           "get-template get-template-summary get-stack-policy",
	"ec2":                      "get-console-output get-ebs-encryption-by-default",
	"kms":                      "get-key-policy get-key-rotation-status",
	"acm":                      "get-certificate",
	"guardduty":                "get-findings get-findings-statistics get-detector",
	"xray":                     "get-trace-summaries get-service-graph",
	"pi":                       "get-resource-metrics",
	"codepipeline":             "get-pipeline-state get-pipeline get-pipeline-execution",
	"codebuild":                "batch-get-builds batch-get-projects",
	"codedeploy":               "get-deployment get-application get-deployment-group",
	"stepfunctions":            "get-execution-history",
	"glue":                     "get-job-run get-job-runs get-jobs get-databases get-tables get-crawlers",
	"athena":                   "get-query-execution",
	"configservice":            "get-compliance-details-by-config-rule get-compliance-summary-by-config-rule get-resource-config-history",
	"service-quotas":           "get-service-quota",
	"route53resolver":          "get-resolver-rule get-resolver-endpoint",
}

// awsGlobals are the options of the aws program itself; true if they take a value.
var awsGlobals = map[string]bool{
	"--region": true, "--profile": true, "--output": true, "--query": true, "--color": true, "--no-cli-pager": false, "--no-paginate": false,
	"--cli-read-timeout": true, "--cli-connect-timeout": true, "--no-cli-auto-prompt": false,
}

// awsRefused are options that load or write files, send credentials elsewhere, or show them. Older
// versions accept unambiguous prefixes of options, so prefixes are refused too.
var awsRefused = []string{
	"--endpoint-url", "--cli-input-json", "--cli-input-yaml", "--generate-cli-skeleton", "--no-verify-ssl", "--ca-bundle", "--debug", "--no-sign-request",
	"--cli-auto-prompt", "--cli-binary-format", "--with-decryption", "--version",
}

func wrapAWS(j *judge, name string, argv []word) {
	if len(argv) == 2 && argv[1].is("--version") {
		j.prove(name)
		return
	}
	var ops []string
	for i := 1; i < len(argv); i++ {
		w := argv[i]
		if w.kind == wordOpaque || w.kind == wordGlob || w.kind == wordAtom && (w.mayBeOption() || w.multi && (len(ops) < 2 || !strings.HasPrefix(argv[i-1].text, "--"))) {
			if _, one := w.onlyExpansion(); !one || len(ops) < 2 || w.mayBeOption() {
				j.add(Medium, EffectUnknown, "an argument of `aws` is only known when it runs")
				return
			}
		}
		t := w.text
		if len(ops) < 2 {
			if !strings.HasPrefix(t, "-") {
				ops = append(ops, t)
				continue
			}
			key, _, eq := strings.Cut(t, "=")
			valued, ok := awsGlobals[key]
			if !ok {
				j.add(Medium, EffectUnknown, "unknown option `%s` of `aws`", key)
				return
			}
			if valued && !eq {
				i++
				if i >= len(argv) || argv[i].kind > wordAtom || argv[i].multi {
					j.add(Medium, EffectUnknown, "the option `%s` of `aws` has no value that is known", key)
					return
				}
			}
			continue
		}
		if strings.HasPrefix(t, "--") && len(t) > 2 {
			key, value, eq := strings.Cut(t, "=")
			if key == "--queue-url" {
				if !eq && i+1 < len(argv) {
					i++
					value = argv[i].text
				}
				if i < len(argv) && argv[i].kind == wordLit && queueURL.MatchString(value) {
					continue
				}
			}
			if strings.Trim(key, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || loadsFile(value) {
				j.add(Medium, EffectUnknown, "unknown option `%s` of `aws`", key)
				return
			}
			for _, bad := range awsRefused {
				if strings.HasPrefix(bad, key) {
					j.add(Medium, EffectEgress, "the option `%s` of `aws` can load files or send requests elsewhere", key)
					return
				}
			}
			continue
		}
		if loadsFile(t) {
			j.add(Medium, EffectSecrets, "`%s` makes `aws` send the content of a file or URL", t)
			return
		}
	}
	if len(ops) < 2 {
		j.add(Low, EffectUnknown, "`aws` without an operation")
		return
	}
	j.addNeeds(NeedNet)
	if !j.checkAWSOwners(argv) {
		return
	}
	if ops[0] == "s3" && ops[1] == "ls" || ops[0] == "configure" && (ops[1] == "list" || ops[1] == "list-profiles") {
		j.prove("aws " + ops[0] + " " + ops[1])
		return
	}
	read := slices.Contains(awsServices, ops[0]) && (strings.HasPrefix(ops[1], "describe-") || strings.HasPrefix(ops[1], "list-")) ||
		slices.Contains(strings.Fields(awsGets[ops[0]]), ops[1])
	if !read {
		j.add(Medium, EffectUnknown, "`aws %s %s` is not known to only read", ops[0], ops[1])
		return
	}
	// These calls have no operands: a word after the operation is an option's value. Only `logs tail`
	// names its group.
	if len(ops) == 2 {
		first := slices.IndexFunc(argv, func(w word) bool { return w.is(ops[1]) })
		for first >= 0 && first+1 < len(argv) && !strings.HasPrefix(argv[first+1].text, "-") {
			if ops[1] != "tail" {
				j.add(Medium, EffectUnknown, "`aws %s %s` with the operand `%s` is not known to only read", ops[0], ops[1], argv[first+1].text)
				return
			}
			first++
		}
	}
	j.prove("aws " + ops[0] + " " + ops[1])
}

// awsAccount matches an account's number in resource names and queue addresses.
var awsAccount = regexp.MustCompile(`(?:^arn:[a-z-]+:[a-z0-9-]*:[a-z0-9-]*:|^https://[a-z0-9.-]+/)([0-9]{12})[:/]`)

// checkAWSOwners refuses buckets and accounts that the operator does not list.
func (j *judge) checkAWSOwners(argv []word) bool {
	for i, w := range argv[1:] {
		last := argv[i].text
		key, value, eq := strings.Cut(w.text, "=")
		if !eq || !strings.HasPrefix(key, "--") {
			key, value = last, w.text
		}
		switch {
		case key == "--bucket":
			if !j.isTrustedBucket("aws", "s3://"+value+"/") {
				return false
			}
		case strings.HasPrefix(value, "s3://"):
			if !j.isTrustedBucket("aws", value) {
				return false
			}
		}
		for one := range strings.FieldsFuncSeq(value, func(r rune) bool { return strings.ContainsRune(" ,\"'=[]{}", r) }) {
			if m := awsAccount.FindStringSubmatch(one + ":"); m != nil && !j.isListed("profile:"+m[1]) {
				j.add(Medium, EffectEgress, "`aws` asks for %s, which may be somebody else's: list profile:%s as a place that reads may reach", one, m[1])
				return false
			}
		}
	}
	return true
}

// queueURL matches the URL by which the API names a queue. The program passes it on and does not fetch
// it.
var queueURL = regexp.MustCompile(`^https://(sqs\.[a-z0-9-]+\.amazonaws\.com|[a-z0-9-]+\.queue\.amazonaws\.com)/[0-9]+/[A-Za-z0-9_-]+(\.fifo)?$`)

func loadsFile(v string) bool {
	return strings.HasPrefix(v, "file:") || strings.HasPrefix(v, "fileb:") || strings.Contains(v, "://") && !strings.HasPrefix(v, "s3://") && !strings.HasPrefix(v, "arn:")
}

// gcloudGroups are the groups whose list and describe only read.
var gcloudGroups = strings.Fields(`app/instances app/services app/versions artifacts/docker/images artifacts/repositories auth billing/accounts bigtable/clusters
 bigtable/instances builds compute/addresses compute/backend-services compute/disks compute/firewall-rules compute/forwarding-rules compute/health-checks
 compute/images compute/instance-groups compute/instance-groups/managed compute/instance-templates compute/instances compute/machine-types
 compute/networks compute/networks/subnets compute/operations compute/project-info compute/regions compute/routers compute/routes compute/snapshots
 compute/ssl-certificates compute/ssl-policies compute/security-policies compute/target-http-proxies compute/target-https-proxies compute/target-tcp-proxies compute/interconnects
 compute/vpn-gateways compute/network-endpoint-groups compute/instance-groups/unmanaged compute/target-pools compute/url-maps compute/vpn-tunnels compute/zones config/configurations container/clusters
 container/images container/node-pools container/operations dataflow/jobs dataproc/clusters dataproc/jobs deploy/releases deployment-manager/deployments
 dns/managed-zones dns/record-sets eventarc/triggers filestore/instances functions iam/roles iam/service-accounts kms/keyrings kms/keys logging/buckets
 logging/logs logging/metrics logging/sinks memcache/instances monitoring/channels monitoring/dashboards monitoring/policies organizations projects
 pubsub/snapshots pubsub/subscriptions pubsub/topics redis/instances resource-manager/folders run/jobs run/revisions run/services scheduler/jobs secrets
 services spanner/databases spanner/instances spanner/operations secrets/versions sql/users composer/environments run/domain-mappings iam/service-accounts/keys sql/backups sql/databases sql/flags sql/instances sql/operations sql/tiers storage/buckets
 tasks/queues workflows/executions`)

// gcloudReads are other commands that read.
var gcloudReads = []string{
	"config/list", "config/get-value", "config/get", "info", "version", "logging/read", "functions/logs/read", "run/services/logs/read", "app/logs/read", "projects/get-iam-policy",
	"compute/instances/get-serial-port-output", "compute/backend-services/get-health", "compute/instance-groups/managed/list-instances",
	"compute/instance-groups/list-instances", "container/get-server-config", "storage/ls", "auth/list", "builds/log", "services/list",
	"compute/target-pools/get-health", "container/images/list-tags", "iam/service-accounts/get-iam-policy", "run/services/get-iam-policy", "storage/du",
}

// gcloudFlags are the options of those commands; true if they take a value.
var gcloudFlags = map[string]bool{
	"--project": true, "--zone": true, "--zones": true, "--region": true, "--regions": true, "--location": true, "--format": true, "--filter": true, "--limit": true,
	"--sort-by": true, "--page-size": true, "--uri": false, "--quiet": false, "-q": false, "--global": false, "--verbosity": true, "--account": true, "--configuration": true,
	"--instance": true, "--cluster": true, "--service": true, "--freshness": true, "--order": true, "--resource-names": true, "--folder": true, "--organization": true,
	"--all": false, "--enabled": false, "--available": false, "--flatten": true, "--backend-service": true, "--network": true, "--port": true, "--start": true, "--platform": true,
	"--created-by-me": false, "--include-tags": false, "--show-deleted": false, "--keyring": true, "--recursive": false, "-l": false, "-r": false, "--long": false, "--ongoing": false,
	"--execution-id": true, "--start-time": true, "--end-time": true, "--min-log-level": true, "--topic": true, "--database": true, "--log-filter": true, "--billing-project": true, "--status": true,
}

func wrapGcloud(j *judge, name string, argv []word) {
	j.onlyLocked("`gcloud`, which keeps its settings and logs")
	if len(argv) == 2 && (argv[1].is("--version") || argv[1].is("version") || argv[1].is("info")) {
		j.prove(name)
		return
	}
	var path []string
	for i := 1; i < len(argv); i++ {
		w := argv[i]
		if w.kind != wordLit && (w.kind != wordAtom || w.multi || w.mayBeOption()) {
			j.add(Medium, EffectUnknown, "an argument of `gcloud` is only known when it runs")
			return
		}
		t := w.text
		if !strings.HasPrefix(t, "-") {
			path = append(path, t)
			continue
		}
		key, value, eq := strings.Cut(t, "=")
		valued, ok := gcloudFlags[key]
		if !ok || eq && !valued {
			j.add(Medium, EffectUnknown, "unknown option `%s` of `gcloud`", key)
			return
		}
		if valued && !eq {
			i++
			if i >= len(argv) || argv[i].kind > wordAtom {
				j.add(Medium, EffectUnknown, "the option `%s` of `gcloud` has no value that is known", key)
				return
			}
			value = argv[i].text
		}
		if loadsFile(value) && !strings.Contains(value, "=") {
			j.add(Medium, EffectUnknown, "`%s` of `gcloud` names a file or URL", key)
			return
		}
	}
	j.addNeeds(NeedNet)
	for _, p := range path {
		if !j.isTrustedBucket("gcloud", p) {
			return
		}
	}
	if len(path) > 0 && (path[0] == "beta" || path[0] == "alpha") {
		path = path[1:]
	}
	joined := strings.Join(path, "/")
	for _, r := range gcloudReads {
		if joined == r || strings.HasPrefix(joined, r+"/") {
			j.prove("gcloud " + strings.ReplaceAll(r, "/", " "))
			return
		}
	}
	for n := len(path) - 1; n > 0; n-- {
		if (path[n] == "list" || path[n] == "describe") && slices.Contains(gcloudGroups, strings.Join(path[:n], "/")) {
			j.prove("gcloud " + strings.Join(path[:n+1], " "))
			return
		}
	}
	j.add(Medium, EffectUnknown, "`gcloud %s` is not known to only read", strings.Join(path, " "))
}
