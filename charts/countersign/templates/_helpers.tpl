{{- define "countersign.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{/* 52 characters at most: the controller appends a dash and a hash of ten to make a label's value of 63. */}}
{{- define "countersign.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "countersign.name" .) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What the network policy selects: the bot and its test. */}}
{{- define "countersign.selector" -}}
app.kubernetes.io/name: {{ include "countersign.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* What the Service selects: the bot alone. */}}
{{- define "countersign.botSelector" -}}
{{ include "countersign.selector" . }}
app.kubernetes.io/component: bot
{{- end -}}

{{- define "countersign.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "countersign.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: countersign
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The labels and more: "extra" wins over commonLabels, and the schema keeps both from the chart's own. */}}
{{- define "countersign.labelsWith" -}}
{{- toYaml (merge (deepCopy .extra) (include "countersign.labels" .root | fromYaml)) -}}
{{- end -}}

{{- define "countersign.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "countersign.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "countersign.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "countersign.claim" -}}
{{- default (printf "%s-data" (include "countersign.fullname" .)) .Values.persistence.existingClaim -}}
{{- end -}}

{{- define "countersign.secret" -}}
{{- default (include "countersign.ownSecret" .) .Values.secrets.existingSecret -}}
{{- end -}}

{{/* The Secret that the chart makes itself. */}}
{{- define "countersign.ownSecret" -}}
{{- printf "%s-secrets" (include "countersign.fullname" .) -}}
{{- end -}}

{{/* "true" if the store is a PostgreSQL database, which several pods share, and not a file of one pod. */}}
{{- define "countersign.postgres" -}}
{{- if or .Values.store.postgres.existingSecret .Values.store.postgres.url -}}
true
{{- end -}}
{{- end -}}

{{/* What runs the bot, as kubectl names it. */}}
{{- define "countersign.workload" -}}
{{- printf "%s/%s" (ternary "deployment" "statefulset" (eq (include "countersign.postgres" .) "true")) (include "countersign.fullname" .) -}}
{{- end -}}

{{/* Whether the Service leads to pods that are not ready: as the values say, or if there is one pod. */}}
{{- define "countersign.publishNotReady" -}}
{{- if kindIs "bool" .Values.service.publishNotReadyAddresses -}}
{{- .Values.service.publishNotReadyAddresses -}}
{{- else -}}
{{- le (int .Values.replicas) 1 -}}
{{- end -}}
{{- end -}}

{{/* "true" if every pod has a directory of its own on a claim that all of them mount. */}}
{{- define "countersign.shared" -}}
{{- if and (include "countersign.postgres" .) .Values.persistence.enabled .Values.persistence.existingClaim -}}
true
{{- end -}}
{{- end -}}

{{/* "true" if Slack's events come by Socket Mode, as far as the values tell: extraEnvFrom may hold the token, too. */}}
{{- define "countersign.slackSockets" -}}
{{- $names := keys (include "countersign.secretKeys" . | fromJson) -}}
{{- range .Values.extraEnv -}}
{{- $names = append $names (.name | trimSuffix "_FILE") -}}
{{- end -}}
{{- if has "SLACK_APP_TOKEN" $names -}}
true
{{- end -}}
{{- end -}}

{{/* "true" on OpenShift, whose admission gives each namespace ids of its own. */}}
{{- define "countersign.openshift" -}}
{{- if or (eq .Values.platform "openshift") (and (eq .Values.platform "auto") (.Capabilities.APIVersions.Has "security.openshift.io/v1")) -}}
true
{{- end -}}
{{- end -}}

{{- define "countersign.monitoring" -}}
{{- if or .Values.metrics.assumeCRDs (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1") -}}
true
{{- end -}}
{{- end -}}

{{/*
The test of the release: "doctor", which needs a volume that a second pod can mount; "ready"
where the store is a database; nothing where neither works.
*/}}
{{- define "countersign.test" -}}
{{- if and .Values.tests.enabled (gt (int .Values.replicas) 0) -}}
{{- if include "countersign.postgres" . -}}
{{- if eq .Values.probes.scheme "HTTP" -}}
ready
{{- end -}}
{{- else if and .Values.persistence.enabled (ne .Values.persistence.accessMode "ReadWriteOncePod") -}}
doctor
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
The configuration as a map, whichever way it was given, under the key "config"; fromYaml
tells of a mistake by a key of its own.
*/}}
{{- define "countersign.configMap" -}}
{{- if kindIs "string" .Values.config -}}
{{- $parsed := fromYaml .Values.config -}}
{{- if hasKey $parsed "Error" -}}
{{- fail (printf "config is not a YAML map (%s); correct the text" (get $parsed "Error" | replace "\n" " ")) -}}
{{- end -}}
{{- dict "config" $parsed | toJson -}}
{{- else -}}
{{- dict "config" (default dict .Values.config) | toJson -}}
{{- end -}}
{{- end -}}

{{/*
The file that the bot reads. A text stays as it is, with its comments; what the chart adds
is appended to it.
*/}}
{{- define "countersign.config" -}}
{{- $given := (include "countersign.configMap" . | fromJson).config -}}
{{- $add := dict -}}
{{- if .Values.metrics.enabled -}}
{{- if hasKey $given "metrics" -}}
{{- fail "config.metrics is set by the chart; remove it and use metrics.port, or set metrics.enabled=false" -}}
{{- end -}}
{{- $_ := set $add "metrics" (dict "listen" (printf "0.0.0.0:%d" (int .Values.metrics.port))) -}}
{{- end -}}
{{- if kindIs "string" .Values.config -}}
{{- $text := .Values.config | trimSuffix "\n" -}}
{{- if $add -}}
{{- $text = printf "%s\n%s" $text (toYaml $add) | trimPrefix "\n" -}}
{{- $parsed := fromYaml $text -}}
{{- if or (hasKey $parsed "Error") (not (hasKey $parsed "metrics")) -}}
{{- fail "config cannot be extended by the chart; write it as a block of `key: value` lines in one document, or set metrics.enabled=false" -}}
{{- end -}}
{{- end -}}
{{- $text -}}
{{- else -}}
{{- $config := default dict .Values.config | deepCopy -}}
{{- $web := get $config "web" | default dict -}}
{{- if and .Values.ingress.enabled .Values.ingress.tls.enabled .Values.ingress.host (not (get $web "origin")) -}}
{{- $_ := set $add "web" (merge (dict "origin" (printf "https://%s" .Values.ingress.host)) $web) -}}
{{- end -}}
{{- include "countersign.exact" $config -}}
{{- toYaml (merge $add $config) -}}
{{- end -}}
{{- end -}}

{{/*
Fails where Helm has already changed what was written: numbers above 2^53 lose digits, and
keys such as off and on are read as false and true (YAML 1.1).
*/}}
{{- define "countersign.exact" -}}
{{- if kindIs "map" . -}}
{{- if or (hasKey . "false") (hasKey . "true") -}}
{{- fail "config has a key such as off, on, yes or no, which Helm reads as false or true; put it in quotes" -}}
{{- end -}}
{{- end -}}
{{- if or (kindIs "map" .) (kindIs "slice" .) -}}
{{- range . -}}{{- include "countersign.exact" . -}}{{- end -}}
{{- else if and (or (kindIs "float64" .) (kindIs "int64" .) (kindIs "int" .)) (gt (int64 .) 9007199254740991) -}}
{{- fail (printf "config has the number %d, whose last digits may be lost; put the id in quotes" (int64 .)) -}}
{{- end -}}
{{- end -}}

{{/* Names of the secrets that the bot gets, as a JSON map from name to key in the Secret. */}}
{{- define "countersign.secretKeys" -}}
{{- $keys := dict -}}
{{- if .Values.secrets.existingSecret -}}
{{- range $name, $key := .Values.secrets.keys -}}
{{- $_ := set $keys $name $key -}}
{{- end -}}
{{- else -}}
{{- range $name, $value := .Values.secrets.values -}}
{{- if $value -}}
{{- $_ := set $keys $name $name -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $keys -}}
{{- end -}}

{{/* GOMEMLIMIT in bytes, or nothing. */}}
{{- define "countersign.goMemLimit" -}}
{{- $limit := dig "limits" "memory" "" .Values.resources -}}
{{- $limit = ternary $limit ($limit | int64 | toString) (kindIs "string" $limit) -}}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 -}}
{{- if and (gt (int .Values.goMemLimitPercent) 0) (regexMatch "^[0-9]+(\\.[0-9]+)?(k|M|G|Ki|Mi|Gi)?$" $limit) -}}
{{- $unit := regexFind "[A-Za-z]*$" $limit -}}
{{- $number := trimSuffix $unit $limit | float64 -}}
{{- mulf $number (get $units $unit) (divf .Values.goMemLimitPercent 100) | floor | int64 -}}
{{- end -}}
{{- end -}}

{{/* Variables of the bot, the test included. "listen" is the address of the console. */}}
{{- define "countersign.env" -}}
{{- $root := .root -}}
{{- $extra := list -}}
{{- range .root.Values.extraEnv -}}
{{- $extra = append $extra .name -}}
{{- end -}}
- name: HOME
  value: /var/lib/countersign
- name: COUNTERSIGN_CONFIG
  value: /etc/countersign/config/countersign.yaml
{{- if include "countersign.shared" .root }}
- name: COUNTERSIGN_POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
# Each pod has a directory of its own on the claim.
- name: COUNTERSIGN_DATA_DIR
  value: /var/lib/countersign/data/$(COUNTERSIGN_POD_NAME)
{{- else }}
- name: COUNTERSIGN_DATA_DIR
  value: /var/lib/countersign/data
{{- end }}
{{- if include "countersign.postgres" .root }}
- name: COUNTERSIGN_STORE_FILE
  value: /etc/countersign/store/url
{{- end }}
- name: COUNTERSIGN_LISTEN
  value: {{ .listen | quote }}
- name: COUNTERSIGN_INSTANCE
  value: {{ .root.Values.instance | quote }}
- name: COUNTERSIGN_LOG_LEVEL
  value: {{ .root.Values.log.level | quote }}
- name: COUNTERSIGN_LOG_FORMAT
  value: {{ .root.Values.log.format | quote }}
- name: COUNTERSIGN_MODEL_API
  value: {{ .root.Values.model.api | quote }}
{{- with .root.Values.model.name }}
- name: OPENAI_MODEL
  value: {{ . | quote }}
{{- end }}
{{- with .root.Values.model.baseURL }}
- name: OPENAI_BASE_URL
  value: {{ . | quote }}
{{- end }}
{{- $limit := include "countersign.goMemLimit" .root }}
{{- if and $limit (not (has "GOMEMLIMIT" $extra)) }}
- name: GOMEMLIMIT
  value: {{ $limit | quote }}
{{- end }}
{{- range $name, $key := include "countersign.secretKeys" .root | fromJson }}
- name: {{ $name }}_FILE
  value: /etc/countersign/secrets/{{ $name }}
{{- end }}
{{- with .root.Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "countersign.mounts" -}}
- name: data
  mountPath: /var/lib/countersign
{{- if include "countersign.shared" . }}
- name: shared
  mountPath: /var/lib/countersign/data
{{- end }}
- name: tmp
  mountPath: /tmp
- name: config
  mountPath: /etc/countersign/config
  readOnly: true
{{- if include "countersign.secretKeys" . | fromJson }}
- name: secrets
  mountPath: /etc/countersign/secrets
  readOnly: true
{{- end }}
{{- if include "countersign.postgres" . }}
- name: store
  mountPath: /etc/countersign/store
  readOnly: true
{{- end }}
{{- if .Values.ssh.existingSecret }}
- name: ssh
  mountPath: /var/lib/countersign/.ssh
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "countersign.volumes" -}}
- name: data
  {{- if include "countersign.postgres" . }}
  emptyDir:
    sizeLimit: {{ .Values.persistence.size | quote }}
{{- if include "countersign.shared" . }}
- name: shared
  persistentVolumeClaim:
    claimName: {{ .Values.persistence.existingClaim | quote }}
{{- end }}
  {{- else if .Values.persistence.enabled }}
  persistentVolumeClaim:
    claimName: {{ include "countersign.claim" . | quote }}
  {{- else }}
  emptyDir: {}
  {{- end }}
- name: tmp
  emptyDir:
    sizeLimit: {{ .Values.tmp.sizeLimit | quote }}
- name: config
  configMap:
    name: {{ include "countersign.fullname" . | quote }}
    defaultMode: 0440
{{- with include "countersign.secretKeys" . | fromJson }}
- name: secrets
  secret:
    secretName: {{ include "countersign.secret" $ | quote }}
    defaultMode: 0440
    # A key that is missing in the Secret keeps the pod from starting.
    items:
      {{- range $name, $key := . }}
      - key: {{ $key | quote }}
        path: {{ $name }}
      {{- end }}
{{- end }}
{{- if include "countersign.postgres" . }}
- name: store
  secret:
    secretName: {{ default (include "countersign.ownSecret" .) .Values.store.postgres.existingSecret | quote }}
    defaultMode: 0440
    items:
      - key: {{ ternary .Values.store.postgres.key "COUNTERSIGN_STORE" (ne .Values.store.postgres.existingSecret "") | quote }}
        path: url
{{- end }}
{{- with .Values.ssh.existingSecret }}
- name: ssh
  secret:
    secretName: {{ . | quote }}
    defaultMode: 0440
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Both follow the Pod Security Standard "restricted", and cannot be loosened by values. */}}
{{- define "countersign.podSecurity" -}}
runAsNonRoot: true
{{- if not (include "countersign.openshift" .) }}
runAsUser: {{ int64 .Values.podSecurity.runAsUser }}
runAsGroup: {{ int64 .Values.podSecurity.runAsGroup }}
fsGroup: {{ int64 .Values.podSecurity.fsGroup }}
{{- end }}
# Always would open the files of the store to the group at each start.
fsGroupChangePolicy: OnRootMismatch
{{- with .Values.podSecurity.supplementalGroups }}
supplementalGroups:
  {{- toYaml . | nindent 2 }}
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "countersign.containerSecurity" -}}
runAsNonRoot: true
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop:
    - ALL
seccompProfile:
  type: RuntimeDefault
{{- end -}}
