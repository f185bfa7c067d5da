package redact

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// sample makes a text from a pattern: {a20} is 20 small letters and digits, and so
// on. So no token stands in this file as it is.
func sample(pattern string, seed uint64) string {
	const small, digits, big = "abcdefghijklmnopqrstuvwxyz", "0123456789", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	sets := map[string]string{
		"a": small + digits, "w": small + big + digits, "A": big + digits, "h": digits + "abcdef", "H": digits + "ABCDEF", "d": digits, "l": small, "x": digits + "abcdefgh",
		"s": "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", "t": big + "234567",
	}
	r := rand.New(rand.NewPCG(seed, 7))
	of := func(set string, n int) string {
		var b strings.Builder
		for range n {
			b.WriteByte(set[r.IntN(len(set))])
		}
		return b.String()
	}
	return regexp.MustCompile(`\{([a-zA-Z])([0-9]*)\}`).ReplaceAllStringFunc(pattern, func(m string) string {
		if m[1] == 'u' {
			return strings.Join([]string{of(sets["h"], 8), of(sets["h"], 4), of(sets["h"], 4), of(sets["h"], 4), of(sets["h"], 12)}, "-")
		}
		n, err := strconv.Atoi(m[2 : len(m)-1])
		if err != nil || sets[m[1:2]] == "" {
			panic(m)
		}
		return of(sets[m[1:2]], n)
	})
}

// gitleaksSamples has a text for each rule; the secret is between « and ».
var gitleaksSamples = map[string]string{
	"1password-secret-key":                        "the kit says «A3-{A6}-{A11}-{A5}-{A5}-{A5}» here",
	"1password-service-account-token":             "export OP=«ops_eyJ{w300}»",
	"adafruit-api-key":                            `adafruit_io: "«{a32}»"`,
	"adobe-client-secret":                         "adobe: «p8e-{a32}»\n",
	"age-secret-key":                              "# created: today\n«AGE-SECRET-KEY-1{s58}»\n",
	"airtable-api-key":                            "AIRTABLE_BASE_KEY=«{a17}»",
	"airtable-personnal-access-token":             "airtable with «pat{w14}.{h64}» now",
	"algolia-api-key":                             "algolia_admin = '«{a32}»'",
	"alibaba-access-key-id":                       "id «LTAI{a20}» is in use",
	"alibaba-secret-key":                          "alibaba_cred=«{a30}»",
	"anthropic-admin-api-key":                     "x «sk-ant-admin01-{w93}AA»\n",
	"anthropic-api-key":                           "x «sk-ant-api03-{w93}AA»\n",
	"artifactory-api-key":                         "curl with «AKCp{w69}»",
	"artifactory-reference-token":                 "curl with «cmVmd{w59}»",
	"asana-client-secret":                         "asana.value := «{a32}»",
	"atlassian-api-token":                         "jira_user_cred: «{a20}{h4}»",
	"atlassian-api-token-v3":                      "jira: user x «ATATT3{w186}»",
	"authress-service-client-access-key":          "«sc_{a10}.{a5}.acc-{a20}.{a60}» for it",
	"aws-access-token":                            "the id ASIA and «ASIA{t16}» in a log",
	"aws-amazon-bedrock-api-key-long-lived":       "«ABSK{w120}=» ",
	"azure-ad-client-secret":                      "sp '«{w3}8Q~{w32}»' made",
	"beamer-api-token":                            "beamer={d0}«b_{a44}»",
	"bitbucket-client-secret":                     "bitbucket_cred = «{a64}»",
	"bittrex-secret-key":                          "bittrex: «{a32}»",
	"cisco-meraki-api-key":                        "MERAKI_DASHBOARD_KEY=«{h40}»",
	"clickhouse-cloud-api-secret-key":             "got «4b1d{w38}» for it",
	"clojars-api-token":                           "deploy with «CLOJARS_{a60}»",
	"cloudflare-api-key":                          "cloudflare: «{a40}»",
	"cloudflare-global-api-key":                   "CLOUDFLARE_GLOBAL_AUTH=«{h37}»",
	"cloudflare-origin-ca-key":                    "origin «v1.0-{h24}-{h146}»",
	"codecov-access-token":                        "codecov_upload: «{a32}»",
	"cohere-api-token":                            `CO_API_KEY="«{w40}»"`,
	"coinbase-access-token":                       "coinbase, «{a64}»",
	"confluent-access-token":                      "confluent_cred=«{a16}»",
	"confluent-secret-key":                        "confluent => «{a64}»",
	"contentful-delivery-api-token":               "contentful_delivery: «{a43}»",
	"databricks-api-token":                        "databricks configure «dapi{h32}»",
	"datadog-access-token":                        "DATADOG_APP=«{a40}»",
	"defined-networking-api-token":                "dnkey: «dnkey-{a26}-{a52}»",
	"digitalocean-access-token":                   "«doo_v1_{h64}»",
	"digitalocean-pat":                            "doctl auth init «dop_v1_{h64}»",
	"digitalocean-refresh-token":                  "«dor_v1_{h64}»",
	"discord-api-token":                           "discord_bot_cred: «{h64}»",
	"discord-client-secret":                       "discord_oauth = «{a32}»",
	"doppler-api-token":                           "doppler run with «dp.pt.{a43}»",
	"droneci-access-token":                        "droneci: «{a32}»",
	"dropbox-api-token":                           "dropbox_pat: «{a15}»",
	"dropbox-long-lived-api-token":                "dropbox: «{a11}AAAAAAAAAA{a43}»",
	"dropbox-short-lived-api-token":               "dropbox: «sl.{a135}»",
	"duffel-api-token":                            "using «duffel_live_{a43}»",
	"dynatrace-api-token":                         "Api-Token «dt0c01.{A24}.{A64}»",
	"easypost-api-token":                          "«EZAK{w54}»",
	"easypost-test-api-token":                     "«EZTK{w54}»",
	"etsy-access-token":                           "etsy_pat=«{a24}»",
	"facebook-access-token":                       "facebook app «{d15}|{a30}» was used",
	"facebook-page-access-token":                  "page «EAAM{w110}»",
	"facebook-secret":                             "facebook_app_cred=«{h32}»",
	"fastly-api-token":                            "fastly: «{a32}»",
	"finicity-api-token":                          "finicity_app_key: «{h32}»",
	"finicity-client-secret":                      "finicity: «{a20}»",
	"finnhub-access-token":                        "finnhub = «{a20}»",
	"flickr-access-token":                         "flickr: «{a32}»",
	"flutterwave-encryption-key":                  "flw «FLWSECK_TEST-{x12}»",
	"flutterwave-secret-key":                      "flw «FLWSECK_TEST-{x32}-X»",
	"flyio-access-token":                          "fly with «fo1_{w43}»",
	"frameio-api-token":                           "frame «fio-u-{a64}»",
	"freemius-secret-key":                         "'secret_key' => '«sk_{w29}»'",
	"freshbooks-access-token":                     "freshbooks: «{a64}»",
	"gcp-api-key":                                 "maps?x «AIza{w35}»",
	"generic-api-key":                             `"deploy_key": "«{w32}»"`,
	"github-app-token":                            "x-access-token:«ghs_{w36}»",
	"github-fine-grained-pat":                     "«github_pat_{w82}»",
	"github-oauth":                                "«gho_{w36}»",
	"github-pat":                                  "git push https://«ghp_{w36}»@github.com/acme/app",
	"github-refresh-token":                        "«ghr_{w36}»",
	"gitlab-cicd-job-token":                       "CI_JOB «glcbt-{w2}_{w20}»",
	"gitlab-deploy-token":                         "«gldt-{w20}»",
	"gitlab-feature-flag-client-token":            "«glffct-{w20}»",
	"gitlab-feed-token":                           "«glft-{w20}»",
	"gitlab-incoming-mail-token":                  "«glimt-{w25}»",
	"gitlab-kubernetes-agent-token":               "«glagent-{w50}»",
	"gitlab-oauth-app-secret":                     "«gloas-{w64}»",
	"gitlab-pat":                                  "«glpat-{w20}»",
	"gitlab-pat-routable":                         "«glpat-{w30}.{a9}»",
	"gitlab-ptt":                                  "«glptt-{h40}»",
	"gitlab-rrt":                                  "register «GR1348941{w20}»",
	"gitlab-runner-authentication-token":          "«glrt-{w20}»",
	"gitlab-runner-authentication-token-routable": "«glrt-t1_{w30}.{a9}»",
	"gitlab-scim-token":                           "«glsoat-{w20}»",
	"gitlab-session-cookie":                       "curl -b «_gitlab_session={a32}»",
	"gitter-access-token":                         "gitter: «{a40}»",
	"gocardless-api-token":                        "gocardless: «live_{a40}»",
	"grafana-api-key":                             "«eyJrIjoi{w90}=» ",
	"grafana-cloud-api-token":                     "«glc_{w60}=» ",
	"grafana-service-account-token":               "«glsa_{w32}_{H8}»",
	"harness-api-key":                             "x-harness «pat.{w22}.{w24}.{w20}»",
	"hashicorp-tf-api-token":                      "terraform login «{w14}.atlasv1.{w64}»",
	"heroku-api-key":                              "HEROKU_DEPLOY_KEY=«{u}»",
	"heroku-api-key-v2":                           "«HRKU-AA{w58}»",
	"hubspot-api-key":                             "hubspot_key=«{H8}-{H4}-{H4}-{H4}-{H12}»",
	"huggingface-access-token":                    "«hf_{l34}»",
	"huggingface-organization-api-token":          "«api_org_{l34}»",
	"infracost-api-token":                         "«ico-{w32}»",
	"intercom-api-key":                            "intercom: «{a60}»",
	"intra42-client-secret":                       "«s-s4t2ud-{h64}»",
	"jfrog-api-key":                               "jfrog: «{a73}»",
	"jfrog-identity-token":                        "artifactory: «{a64}»",
	"jwt":                                         "«eyJ{w20}.eyJ{w40}.{w30}»",
	"jwt-base64":                                  "«ZXlKaGJHY2lPaU{w60}»",
	"kraken-access-token":                         "kraken: «{w85}»",
	"kucoin-access-token":                         "kucoin_key: «{h24}»",
	"kucoin-secret-key":                           "kucoin_auth: «{u}»",
	"launchdarkly-access-token":                   "launchdarkly: «{a40}»",
	"linear-api-key":                              "«lin_api_{a40}»",
	"linear-client-secret":                        "linear_key: «{h32}»",
	"linkedin-client-secret":                      "linkedin: «{a16}»",
	"lob-api-key":                                 "lob: «live_{h35}»",
	"looker-client-secret":                        "looker: «{a24}»",
	"mailchimp-api-key":                           "mailchimp: «{h32}-us12»",
	"mailgun-private-api-token":                   "mailgun: «key-{h32}»",
	"mailgun-signing-key":                         "mailgun_key: «{x32}-{x8}-{x8}»",
	"mapbox-api-token":                            "mapbox: «pk.{a60}.{a22}»",
	"mattermost-access-token":                     "mattermost_pat: «{a26}»",
	"maxmind-license-key":                         "geoip «{w6}_{w29}_mmk»",
	"messagebird-api-token":                       "message-bird: «{a25}»",
	"microsoft-teams-webhook":                     "posting to «https://acme.webhook.office.com/webhookb2/{u}@{u}/IncomingWebhook/{a32}/{u}»",
	"netlify-access-token":                        "netlify: «{a42}»",
	"new-relic-browser-api-token":                 "new-relic: «NRJS-{h19}»",
	"new-relic-insert-key":                        "new_relic: «NRII-{a32}»",
	"new-relic-user-api-key":                      "newrelic: «NRAK-{a27}»",
	"notion-api-token":                            "«ntn_{d11}{w35}»",
	"npm-access-token":                            "«npm_{w36}»",
	"nuget-config-password":                       `<add key="ClearTextPassword" value="«x9!{w12}»" />`,
	"nytimes-access-token":                        "nytimes: «{a32}»",
	"octopus-deploy-api-key":                      "octo «API-{A26}»",
	"okta-access-token":                           "okta: «00{w40}»",
	"openai-api-key":                              "«sk-{w20}T3BlbkFJ{w20}»",
	"openshift-user-token":                        "oc login with «sha256~{w43}»",
	"perplexity-api-key":                          "«pplx-{w48}»",
	"plaid-api-token":                             "plaid: «access-sandbox-{u}»",
	"plaid-secret-key":                            "plaid: «{a30}»",
	"planetscale-api-token":                       "«pscale_tkn_{w40}»",
	"planetscale-oauth-token":                     "«pscale_oauth_{w40}»",
	"planetscale-password":                        "«pscale_pw_{w40}»",
	"postman-api-token":                           "«PMAK-{h24}-{h34}»",
	"prefect-api-token":                           "«pnu_{w36}»",
	"privateai-api-token":                         "private_ai: «{a32}»",
	"pulumi-api-token":                            "«pul-{h40}»",
	"pypi-upload-token":                           "twine «pypi-AgEIcHlwaS5vcmc{w120}»",
	"rapidapi-access-token":                       "rapidapi: «{a50}»",
	"readme-api-token":                            "«rdme_{a70}»",
	"rubygems-api-token":                          "«rubygems_{h48}»",
	"scalingo-api-token":                          "«tk-us-{w48}»",
	"sendbird-access-token":                       "sendbird_key: «{h40}»",
	"sendgrid-api-token":                          "«SG.{a22}.{a43}»",
	"sendinblue-api-token":                        "«xkeysib-{h64}-{a16}»",
	"sentry-access-token":                         "sentry_auth: «{h64}»",
	"sentry-org-token":                            "«sntrys_eyJpYXQiO{w60}LCJyZWdpb25fdXJs{w60}_{w43}» ",
	"sentry-user-token":                           "«sntryu_{h64}»",
	"settlemint-application-access-token":         "«sm_aat_{w16}»",
	"settlemint-personal-access-token":            "«sm_pat_{w16}»",
	"settlemint-service-access-token":             "«sm_sat_{w16}»",
	"shippo-api-token":                            "«shippo_live_{h40}»",
	"shopify-access-token":                        "«shpat_{h32}»",
	"shopify-custom-access-token":                 "«shpca_{h32}»",
	"shopify-private-app-access-token":            "«shppa_{h32}»",
	"shopify-shared-secret":                       "«shpss_{h32}»",
	"sidekiq-secret":                              "BUNDLE_GEMS__CONTRIBSYS__COM=«a{h7}:b{h7}»",
	"slack-app-token":                             "«xapp-1-A{A8}-{d12}-{h40}»",
	"slack-bot-token":                             "«xoxb-{d12}-{d12}{w24}»",
	"slack-config-access-token":                   "«xoxe.xoxp-1-{A164}»",
	"slack-config-refresh-token":                  "«xoxe-1-{A146}»",
	"slack-legacy-bot-token":                      "«xoxb-{d12}-{w24}»",
	"slack-legacy-token":                          "«xoxs-{d10}-{d10}-{d10}-{h10}»",
	"slack-legacy-workspace-token":                "«xoxa-2-{w40}»",
	"slack-user-token":                            "«xoxp-{d12}-{d12}-{d12}-{w32}»",
	"snyk-api-token":                              "snyk_token: «{u}»",
	"sonar-api-token":                             "sonar_login: «squ_{a40}»",
	"sourcegraph-access-token":                    "«sgp_{h16}_{h40}»",
	"square-access-token":                         "«sq0atp-{w22}»",
	"squarespace-access-token":                    "squarespace_key: «{u}»",
	"stripe-access-token":                         "«rk_prod_{w24}»",
	"sumologic-access-token":                      "sumo: «{a64}»",
	"telegram-bot-api-token":                      "telegram: «{d9}:A{a34}»",
	"travisci-access-token":                       "travis: «{a22}»",
	"twilio-api-key":                              "«SK{h32}»",
	"twitch-api-token":                            "twitch: «{a30}»",
	"twitter-access-secret":                       "twitter: «{a45}»",
	"twitter-access-token":                        "twitter: «{d18}-{w30}»",
	"twitter-api-key":                             "twitter: «{a25}»",
	"twitter-api-secret":                          "twitter: «{a50}»",
	"twitter-bearer-token":                        "twitter: «AAAAAAAAAAAAAAAAAAAAAA{w90}»",
	"typeform-api-token":                          "typeform: «tfp_{a59}»",
	"vault-batch-token":                           "«hvb.{w150}»",
	"vault-service-token":                         "«s.{w24}»",
	"yandex-access-token":                         "yandex: «t1.{w20}.{w86}»",
	"yandex-api-key":                              "yandex: «AQVN{w36}»",
	"yandex-aws-access-token":                     "yandex: «YC{w38}»",
	"zendesk-secret-key":                          "zendesk: «{a40}»",
	"aws-amazon-bedrock-api-key-short-lived":      "using «bedrock-api-key-{w80}==» now",
}

func TestEachRuleFindsItsSecret(t *testing.T) {
	r := New()
	byID := map[string]*rule{}
	for i := range rules().rules {
		ru := &rules().rules[i]
		if ru.hunt != nil && ru.name != kubeData && ru.name != privateKey {
			byID[ru.name] = ru
		}
	}
	for id, ru := range byID {
		pattern := gitleaksSamples[id]
		if pattern == "" {
			t.Errorf("%s has no sample", id)
			continue
		}
		for seed := range uint64(20) {
			text := sample(pattern, seed)
			from, to := strings.Index(text, "«"), strings.Index(text, "»")-len("«")
			secret := text[from+len("«") : to+len("«")]
			text = strings.NewReplacer("«", "", "»", "").Replace(text)

			var spans []span
			set := newMatcher(ru.words, true)
			set.each(text, func(word, at int) bool {
				spans, _ = ru.hunt(&page{s: text}, at, at+set.size[word], spans)
				return true
			})
			if !slices.ContainsFunc(spans, func(s span) bool { return s.value == secret }) {
				t.Errorf("%s alone finds %v in %q", id, spans, text)
				break
			}
			got := r.Redact(text)
			if strings.Contains(got, secret) || !strings.Contains(got, "[redacted:") || strings.Contains(got, secret[max(0, len(secret)-12):]) {
				t.Errorf("%s: %q became %q", id, text, got)
				break
			}
			if again := r.Redact(got); again != got {
				t.Errorf("%s: %q, then %q", id, got, again)
			}
		}
		delete(byID, id)
	}
	for id := range gitleaksSamples {
		if !slices.ContainsFunc(rules().rules, func(ru rule) bool { return ru.name == id }) {
			t.Errorf("there is no rule %s", id)
		}
	}
}

// What whoever is on call reads all day.
var ordinaryText = []string{
	"HEAD is now at 9fceb02d0ae598e95dc970b74767f19372d61af8 fix the key: token.go",
	"datadog-agent commit: 9fceb02d0ae598e95dc970b74767f19372d61af8", "cloudflare worker version: 9fceb02d0ae598e95dc970b74767f19372d61af8", "sourcegraph at 9fceb02d0ae598e95dc970b74767f19372d61af8 ",
	"sentry image sha256:4b825dc642cb6eb9a060e54bf8d69288fbee4904d2a5a4d6b5b4f5c0a1b2c3d4 pulled", "jfrog artifactory: 4b825dc642cb6eb9a060e54bf8d69288fbee4904d2a5a4d6b5b4f5c0a1b2c3d4",
	"registry.example.com/datadog/agent@sha256:4b825dc642cb6eb9a060e54bf8d69288fbee4904d2a5a4d6b5b4f5c0a1b2c3d4", "Digest: sha256:4b825dc642cb6eb9a060e54bf8d69288fbee4904d2a5a4d6b5b4f5c0a1b2c3d4",
	"docker://4b825dc642cb6eb9a060e54bf8d69288fbee4904d2a5a4d6b5b4f5c0a1b2c3d4", "fastly service md5: d41d8cd98f00b204e9800998ecf8427e",
	"heroku dyno: 550e8400-e29b-41d4-a716-446655440000", "hubspot request_id=550E8400-E29B-41D4-A716-446655440000", "idempotency key: 550e8400-e29b-41d4-a716-446655440000", "api request id: 01ARZ3NDEKTSV4RRFFQ69G5FAV.x",
	"discord channel: 123456789012345678", "asana task: 1234567890123456", "dropbox: synchronization failed", "confluent: authentications", "kraken=enabled", "travis: passed", "twitch: disconnected",
	"cache key: user/4711/session/list", "s3 key=logs/2026/01/02/part-0001.gz", "consul key: prod/web/frontend2/config", "etcd key /registry/pods/default/web-7f9c6b5d4c-x2x9k",
	"key=orders-2026-01-02-00017", "partition key: 4f3c2b1a9d8e7f60", "access_log=/var/log/nginx/access.log", "access: 10.0.0.1 10.0.0.2", "auth service build: v1.24.3-4-g9fceb02", "api version: v1beta1",
	"api: https://10.96.0.1:443", "author: Jane Q. Public <jane@example.com>", "keyword: abc", "monkey: abcdef1234567890x", "primary_key=order_id_2026_x", "public_key: id", "key_id=4b1d2c3e-4f5a-6b7c", "csrf_token: missing", "accessKeyId: none",
	"pod/web-7f9c6b5d4c-x2x9k 1/1 Running 0 3d4h", "deployment.apps/datadog-cluster-agent-6d5f8b7c9-abcde created", "configmap/kube-root-ca.crt", "serviceaccount/default", "auth=OAuth2ClientCredentials",
	"java.lang.IllegalStateException: key not found\n\tat com.acme.auth.TokenService.refresh(TokenService.java:142)\n\tat o.s.s.w.a.Http403ForbiddenEntryPoint.commence(Http403ForbiddenEntryPoint.java:52)",
	"goroutine 42 [running]:\nmain.(*Server).auth(0xc000123456, {0x7f1234567890, 0x20})\n\t/srv/app/auth.go:88 +0x1a5", "  File \"/usr/lib/python3/dist-packages/twitter/api.py\", line 12, in key",
	"aws configmap: c3RhdHVzOiBvawpyZWdpb246IGV1LXdlc3QtMQo=", "echo c3RhdHVzOiBvawpyZWdpb246IGV1LXdlc3QtMQo= | base64 -d", "data:\n  config: c3RhdHVzOiBvawpyZWdpb246IGV1LXdlc3QtMQo=\nkind: ConfigMap\n",
	"apiVersion: v1\ndata:\n  ca.crt: TUlJQmlqQ0NBVENnQXdJQkFnSUJBREFL\nkind: ConfigMap\nmetadata:\n  name: x\n", `{"apiVersion":"v1","kind":"ConfigMap","data":{"x":"c3RhdHVzOiBvawpyZWdp"}}`,
	"-----BEGIN CERTIFICATE-----\nMIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0BAQUFADBaMQswCQYDVQQGEwJJ\nEAAABBgwFgYDVQQDDA9hY21lLmV4YW1wbGUuY29tMB4XDTI2MDEwMjAzMDQwNVoX\n-----END CERTIFICATE-----",
	"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJq0sYp8f4n1mVZQk3l9d8rX2c7b6a5e4f3g2h1i0j9k root@web-1", "SHA256:uNiVztksCsDhcc0u9e8BgrJXVGDqFZjIMy0Zx3xkOKk", "key fingerprint is SHA256:uNiVztksCsDhcc0u9e8BgrJXVGDqFZjIMy0Zx3xkOKk.",
	"traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "x-amzn-trace-id: Root=1-5759e988-bd862e3fe1be46a994272793", "etag: \"33a64df551425fcc55e4d42a148795d9f25f0d2c\"",
	"i-0123456789abcdef0 running", "arn:aws:elasticloadbalancing:eu-west-1:123456789012:loadbalancer/app/web/50dc6c495c0c9188", "vpc-0a1b2c3d4e5f", "the okta app: 0oa1b2c3", "jira: OPS-4711", "confluence page: 123456789",
	"task disk SKIPPED", "keys: [a1b2, c3d4]", "sort key = createdAt2", "GET /api/v1/auth?x=1 200 1.2ms", "kubectl get secret web -o yaml", "kind: Secret\nmetadata:\n  name: web\n", "kind: SecretList", "api-server: kube-apiserver-v1.29.3",
	"npm_config_cache=/root/.npm", "hf_hub_download", "sk_buff allocation failed", "s.length is 24", "pat.match(x)", "ext_proc filter", "eyes on it", "ops_eyJ", "linear: interpolation", "lob: blob: 12",
}

func TestWhatPeopleOnCallReadStays(t *testing.T) {
	r := New()
	for _, s := range ordinaryText {
		for _, s := range []string{s, s + "\n", "\x1b[1m" + s + "\x1b[0m", `{"log":` + strconv.Quote(s) + `}`} {
			if got := r.Redact(s); got != s {
				t.Errorf("%q became %q", s, got)
			}
		}
	}
}

// A secret of Kubernetes, as kubectl and manifests have it.
var kubeTexts = map[string]string{
	"as kubectl prints it":          "apiVersion: v1\ndata:\n  password: aHVudGVyMmh1bnRlcjI=\n  tls.crt: Y2VydA==\nkind: Secret\nmetadata:\n  name: web\n",
	"in a list":                     "apiVersion: v1\nitems:\n- apiVersion: v1\n  data:\n    one: aHVudGVyMmh1bnRlcjI=\n  kind: Secret\n  metadata:\n    name: a\n- apiVersion: v1\n  data:\n    free: c3RhdHVzOiBvawo=\n  kind: ConfigMap\nkind: List\n",
	"a manifest":                    "---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: web\ntype: Opaque\nstringData:\n  one: hunter2 hunter2\n  two: |\n    first hunter2\n    second hunter2\n---\nkind: ConfigMap\ndata:\n  free: c3RhdHVzOiBvawo=\n",
	"inline":                        "kind: Secret\ndata: {one: aHVudGVyMmh1bnRlcjI=}\n",
	"JSON":                          "{\n  \"apiVersion\": \"v1\",\n  \"data\": {\n    \"one\": \"aHVudGVyMmh1bnRlcjI=\"\n  },\n  \"kind\": \"Secret\"\n}\n",
	"JSON in one line":              `{"kind":"Secret","data":{"one":"aHVudGVyMmh1bnRlcjI=","two":"aHVudGVyMmh1bnRlcjI="}} {"kind":"ConfigMap","data":{"free":"c3RhdHVzOiBvawo="}}`,
	"JSON in a string":              `{"log":"{\"kind\":\"Secret\",\"data\":{\"one\":\"aHVudGVyMmh1bnRlcjI=\"}}"}`,
	"cut off before its kind":       "apiVersion: v1\ndata:\n  one: aHVudGVyMmh1bnRlcjI=\n",
	"JSON, cut off before its kind": `{"apiVersion":"v1","data":{"one":"aHVudGVyMmh1bnRlcjI=",`,
	"with carriage returns":         "apiVersion: v1\r\ndata:\r\n  one: aHVudGVyMmh1bnRlcjI=\r\nkind: Secret\r\n",
}

func TestTheDataOfAKubernetesSecretGoes(t *testing.T) {
	r := New()
	texts := map[string]string{}
	for name, text := range kubeTexts {
		once := inJSON("x\n"+text, true)
		texts[name], texts[name+", escaped"], texts[name+", escaped twice"] = text, `{"stdout":"`+once+`","stderr":"data:\n  a: b\n"}`, `"`+inJSON(`{"stdout":"`+once+`"}`, false)+`"`
	}
	for name, text := range texts {
		got := r.Redact(text)
		if strings.Contains(got, "aHVudGVy") || strings.Contains(got, "hunter2") || !strings.Contains(got, "[redacted:") {
			t.Errorf("%s: %q", name, got)
		}
		if strings.Contains(text, "free") && !strings.Contains(got, "c3RhdHVzOiBvawo=") {
			t.Errorf("%s: the configuration is gone: %q", name, got)
		}
		if again := r.Redact(got); again != got {
			t.Errorf("%s: %q, then %q", name, got, again)
		}
	}
}

// Each word that a rule looks for, with what its expression wants next; and what
// makes a rule look far. A square of 64 KiB is minutes here.
func TestNoTextTakesASquareOfTime(t *testing.T) {
	r := New("hunter2hunter2")
	took := func(text string) time.Duration {
		start := time.Now()
		r.Redact(text)
		return time.Since(start)
	}
	for _, unit := range []string{
		"ey", "eyJ" + strings.Repeat("a", 20) + ".", "eyJ" + strings.Repeat("a", 20) + "/", `{"kind":"Secret"`, `"kind":"Secret"}`, "kind: Secret\n", "apiVersion: v1\ndata:\n", "- kind: Secret\n  data:\n",
		"key=a1", "key=a1/", "keykeykeykey = ", "key=\n", "x.y.", `<add key="password" value="`, "https://a.webhook.office.com/webhookb2/", `"secret_key" `, "fm2_a/", "facebook 123456789012345|", "atlasv1", "t3blbkfj",
	} {
		if d := took(strings.Repeat(unit, 64<<10/len(unit))); d > 10*time.Second {
			t.Errorf("%q takes %v", unit, d)
		}
	}
	forms := []string{"", "=", " ", ": 'abc1", "/", `"`, "a."}
	for i, ru := range rules().rules {
		for j, w := range ru.words {
			unit := w + forms[(i+j)%len(forms)]
			if d := took(strings.Repeat(unit, 4<<10/len(unit))); d > 5*time.Second {
				t.Errorf("%q takes %v", unit, d)
			}
		}
	}
}
