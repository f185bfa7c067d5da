// Package secretfile is the one list of files whose content is a secret: the product's own, and the
// well-known ones of others. The proof that a command only reads, the tools for files and the test of
// what our programs write all read it; what a bot's configuration names is beside it (config).
// It is pure: it looks at names, never at files.
package secretfile

import (
	"path"
	"slices"
	"strings"
)

// ours are the directories that the product keeps secrets in.
var ours = strings.Fields(`/.config/countersign/ /etc/countersign/ /var/lib/countersign/ /.local/share/countersign/ /countersign/hooks/ /countersign-witness/state/`)

// Files are the product's own files with secrets, by their directory and name: the programs beside the
// bot make them in a directory that their operator names, usually this one.
var Files = strings.Fields(`
 countersign/client.json countersign/environment countersign/countersign.yaml
 countersign-signer/ca countersign-signer/ca.next countersign-signer/token countersign-signer/state countersign-signer/issued countersign-signer/issued.secret countersign-signer/signer.yaml
 countersign-witness/key countersign-witness/witness.yaml`)

// Names are the base names of files whose content is a secret in any directory.
var Names = strings.Fields(`
 shadow shadow- gshadow gshadow- opasswd master.passwd shadow.bak gshadow.bak shadow.old smbpasswd passdb.tdb secrets.tdb .htpasswd .htdigest
 id_rsa id_dsa id_ecdsa id_ed25519 id_ecdsa_sk id_ed25519_sk
 .netrc _netrc .authinfo .pgpass pgpass.conf .my.cnf .mylogin.cnf debian.cnf .fetchmailrc .msmtprc msmtprc .muttrc .smbcredentials .cifs-credentials
 .npmrc .yarnrc.yml .pypirc .git-credentials .gitrobrc .boto .s3cfg .s3ql rclone.conf sftp-config.json recentservers.xml sitemanager.xml filezilla.xml .databrickscfg
 .env .envrc credentials credentials.json credentials.xml credentials.db credentials.toml access_tokens.db accessTokens.json msal_token_cache.json application_default_credentials.json
 service-account.json key.json adc.json .vault-token .vault_pass .vault_pass.txt .vault-pass vault_pass vault_pass.txt vault-pass .consul-token .nomad-token vault.yml .terraformrc .tofurc terraform.rc credentials.tfrc.json terraform.tfvars
 kubeconfig admin.conf super-admin.conf controller-manager.conf scheduler.conf kubelet.conf bootstrap-kubelet.conf k3s.yaml .dockerconfigjson .dockercfg auth.json
 environ kcore chap-secrets pap-secrets ipsec.secrets wpa_supplicant.conf openvpn-auth.txt sasl_passwd sasl_passwd.db passwd.client userlist.txt rndc.key
 sssd.conf nslcd.conf pam_ldap.conf ldap.conf.secret krb5.keytab user-data user-data.txt user-data.txt.i cloud-config.txt instance-data-sensitive.json questions.dat passwords.dat
 wp-config.php config.inc.php LocalSettings.php configuration.php settings.local.php database.yml env.php parameters.yml tomcat-users.xml mgmt-users.properties jmxremote.password
 settings-security.xml gitlab-secrets.json gitlab.rb zabbix_server.conf hostapd.conf grafana.ini redis.conf monitrc .monitrc printers.conf NuGet.Config NuGet.config nuget.config sentry.conf.py omniauth.rb secret_token.rb carrierwave.rb knife.rb heroku.json robomongo.json proftpdpasswd
 countersign.db countersign.db.journal oauth_creds.json .credentials.json .claude.json mcp-oauth-tokens.json kaggle.json .aider.conf.yml .lesshst .viminfo .histfile consolehost_history.txt
 secrets.yml secrets.yaml secrets.json secrets.env secrets.toml secret.yml secret.yaml secret.json master.key erlang.cookie .erlang.cookie
 config.v2.json key4.db logins.json wallet.dat login.keyring`)

// endings are suffixes of names whose content is a secret.
var endings = strings.Fields(`.key .p8 .p12 .pfx .pkcs12 .pk8 .jks .jceks .bks .keystore .truststore.jks .kdb .kdbx .ppk .pvk .keytab .kubeconfig .ovpn .agilekeychain .keychain .kwallet
 .tfstate .tfstate.backup .tfvars .tfvars.json _history .env _rsa _dsa _ed25519 _ecdsa -key.pem key.pem -key.json _key.json .gpg .pgp .age .keyring .secret .secrets .pass .passwd .password .passwords .token .tokens .credentials
 -token _token .htpasswd .pgpass .netrc .sops.yaml .sops.yml .sops.json`)

// Dirs are directories whose files are secrets, wherever they lie.
var Dirs = append(strings.Fields(`
 /.ssh/ /.gnupg/ /.aws/ /.kube/ /.azure/ /.oci/ /.config/gcloud/ /.docker/ /.config/gh/ /.config/glab-cli/ /.config/hub/ /.config/doctl/ /.config/hcloud/ /.config/argocd/ /.argocd/ /.config/rclone/
 /.config/sops/ /.config/containers/ /.config/op/ /.config/helm/ /.config/borg/ /.config/restic/ /.config/anthropic/ /.m2/ /.gradle/ /.password-store/ /.local/share/keyrings/ /.subversion/auth/ /.minikube/ /.terraform.d/ /.snowsql/ /.bluemix/ /.mozilla/ /.thunderbird/
 /.config/google-chrome/ /.config/chromium/ /.config/github-copilot/ /.copilot/ /.config/Claude/ /.config/scw/ /.config/stripe/ /.config/linode-cli/ /.config/netlify/ /.fly/ /.wrangler/
 /run/secrets/ /run/credentials/ /run/containers/0/ /etc/credstore/ /etc/credstore.encrypted/ /etc/ssl/private/ /etc/pki/private/ /etc/pki/tls/private/ /etc/pki/nssdb/ /etc/kubernetes/pki/
 /etc/wireguard/ /etc/openvpn/ /etc/ipsec.d/private/ /etc/swanctl/private/ /etc/swanctl/rsa/ /etc/swanctl/ecdsa/ /etc/swanctl/pkcs8/ /etc/swanctl/pkcs12/ /etc/dovecot/private/
 /etc/NetworkManager/system-connections/ /etc/netplan/ /etc/krb5kdc/ /var/kerberos/krb5kdc/ /var/lib/krb5kdc/ /etc/salt/pki/ /etc/puppetlabs/puppet/ssl/private_keys/ /var/lib/puppet/ssl/private_keys/
 /etc/letsencrypt/accounts/ /etc/letsencrypt/keys/ /etc/vault.d/ /etc/consul.d/ /etc/nomad.d/ /etc/gitlab-runner/ /etc/freeradius/ /etc/raddb/ /etc/grafana/provisioning/datasources/ /etc/rancher/
 /var/backups/ /var/lib/cloud/ /run/cloud-init/ /var/lib/sss/ /var/lib/samba/private/ /var/lib/NetworkManager/ /var/lib/iwd/ /var/lib/bluetooth/ /var/lib/kubelet/pki/ /var/lib/kubelet/pods/ /var/lib/rancher/ /var/lib/k0s/
 /var/lib/etcd/ /var/lib/docker/swarm/ /var/lib/containers/storage/overlay-containers/ /run/containerd/ /run/crun/ /run/runc/ /var/lib/jenkins/secrets/ /var/jenkins_home/secrets/ /var/lib/postgresql/ /var/lib/mysql/mysql/ /var/lib/pgsql/data/base/
 /var/lib/mongodb/ /var/lib/redis/ /var/lib/ldap/ /var/lib/vault/ /var/lib/tor/ /var/lib/fprint/ /var/lib/systemd/coredump/ /var/crash/ /var/spool/mail/ /var/mail/ /var/snap/microk8s/current/credentials/ /var/cache/debconf/ /var/log/installer/`), ours...)

// words mark a base name as a secret.
var words = []string{"password", "passwd.", "credential", "apikey", "api_key", "private_key", "privkey", "secret", "access_token", "auth_token", "passphrase", "keystore"}

var publicNames = []string{"known_hosts", "authorized_keys", "config"}

// Why returns why the content of a file is a secret, or "". The path is clean; a directory of secrets
// counts as well.
func Why(p string) string {
	base := path.Base(p)
	in := "/" + strings.TrimPrefix(p, "/") + "/"
	if Ours(p) {
		return "Countersign keeps keys and tokens there"
	}
	for _, d := range Dirs {
		if !strings.Contains(in, d) {
			continue
		}
		if d == "/.ssh/" && (slices.Contains(publicNames, base) || strings.HasSuffix(base, ".pub")) {
			return ""
		}
		return "keys and credentials lie there"
	}
	switch {
	case slices.Contains(Names, base):
		return "its content is a secret"
	case strings.HasPrefix(base, "krb5cc_"):
		return "its content is a ticket"
	case strings.HasPrefix(base, ".env.") || strings.HasPrefix(base, "ssh_host_") && !strings.HasSuffix(base, ".pub"):
		return "its content is a secret"
	case strings.HasPrefix(p, "/proc/") && (base == "mem" || base == "kcore" || base == "kmem" || base == "auxv"):
		return "it shows memory"
	case strings.HasSuffix(base, ".pem") && !publicPEM(base):
		return "a .pem file can be a private key"
	case base == "token" || base == ".token" || base == "token.txt":
		return "its content is a token"
	}
	for _, e := range endings {
		if strings.HasSuffix(base, e) {
			return "its content is a secret"
		}
	}
	lower := strings.ToLower(base)
	for _, e := range words {
		if strings.Contains(lower, e) {
			return "its name says that it is a secret"
		}
	}
	return ""
}

// Ours reports whether a file is one of the product's own with secrets, or a directory of them.
func Ours(p string) bool {
	in := "/" + strings.TrimPrefix(p, "/") + "/"
	return slices.ContainsFunc(ours, func(d string) bool { return strings.Contains(in, d) }) ||
		slices.ContainsFunc(Files, func(f string) bool {
			return strings.HasSuffix(in, "/"+f+"/") || strings.HasSuffix(in, "/"+path.Dir(f)+"/") && path.Dir(f) != "countersign"
		})
}

func publicPEM(base string) bool {
	for _, ok := range []string{"fullchain", "chain", "cert", "ca.", "ca-", "cacert", "bundle", "dhparam", "cafile"} {
		if strings.HasPrefix(base, ok) {
			return true
		}
	}
	return false
}
