{{/* The pod, of a StatefulSet or of a Deployment. */}}
{{- define "countersign.pod" -}}
metadata:
  annotations:
    kubectl.kubernetes.io/default-container: bot
    # A changed configuration restarts the bot.
    checksum/config: {{ include "countersign.config" . | sha256sum }}
    {{- if not .Values.secrets.existingSecret }}
    checksum/secrets: {{ .Values.secrets.values | toJson | sha256sum }}
    {{- end }}
    {{- with .Values.store.postgres.url }}
    checksum/store: {{ . | sha256sum }}
    {{- end }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  labels:
    {{- include "countersign.labelsWith" (dict "root" . "extra" .Values.podLabels) | nindent 4 }}
    app.kubernetes.io/component: bot
spec:
  serviceAccountName: {{ include "countersign.serviceAccount" . | quote }}
  automountServiceAccountToken: {{ .Values.rbac.create }}
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  securityContext:
    {{- include "countersign.podSecurity" . | nindent 4 }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . | quote }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- else }}
  {{- if gt (int .Values.replicas) 1 }}
  affinity:
    # One node that goes takes one replica with it, where there are nodes enough.
    podAntiAffinity:
      preferredDuringSchedulingIgnoredDuringExecution:
        - weight: 100
          podAffinityTerm:
            topologyKey: kubernetes.io/hostname
            labelSelector:
              matchLabels:
                {{- include "countersign.botSelector" $ | nindent 16 }}
  {{- end }}
  {{- end }}
  {{- $spread := dict "app.kubernetes.io/name" (include "countersign.name" .) "app.kubernetes.io/component" "bot" }}
  {{- if include "countersign.postgres" . }}
  {{- $spread = include "countersign.botSelector" . | fromYaml }}
  {{- end }}
  {{- with .Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- range . }}
    - {{ merge (dict) . (dict "labelSelector" (dict "matchLabels" $spread)) | toYaml | nindent 6 | trim }}
    {{- end }}
  {{- else }}
  {{- if gt (int .Values.replicas) 1 }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: topology.kubernetes.io/zone
      whenUnsatisfiable: ScheduleAnyway
      # Pods of the version before do not count during an update.
      matchLabelKeys: [pod-template-hash]
      labelSelector:
        matchLabels:
          {{- toYaml $spread | nindent 10 }}
  {{- end }}
  {{- end }}
  {{- with .Values.initContainers }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: bot
      image: {{ include "countersign.image" . | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      # The pod's network is the cluster's: TLS is the ingress's business.
      args: ["run", "--insecure-http"]
      env:
        {{- include "countersign.env" (dict "root" . "listen" "0.0.0.0:8700") | nindent 8 }}
      {{- with .Values.extraEnvFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        - name: http
          containerPort: 8700
          protocol: TCP
        {{- if .Values.metrics.enabled }}
        - name: metrics
          containerPort: {{ .Values.metrics.port }}
          protocol: TCP
        {{- end }}
      startupProbe:
        httpGet: {path: /healthz, port: http, scheme: {{ .Values.probes.scheme }}}
        {{- toYaml .Values.probes.startup | nindent 8 }}
      livenessProbe:
        httpGet: {path: /healthz, port: http, scheme: {{ .Values.probes.scheme }}}
        {{- toYaml .Values.probes.liveness | nindent 8 }}
      readinessProbe:
        httpGet: {path: /readyz, port: http, scheme: {{ .Values.probes.scheme }}}
        {{- toYaml .Values.probes.readiness | nindent 8 }}
      {{- if include "countersign.postgres" . }}
      # Whoever leads requests here learns meanwhile that the pod ends.
      lifecycle:
        preStop:
          exec:
            command: ["sleep", "5"]
      {{- end }}
      {{- with .Values.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        {{- include "countersign.containerSecurity" . | nindent 8 }}
      volumeMounts:
        {{- include "countersign.mounts" . | nindent 8 }}
    {{- with .Values.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    {{- include "countersign.volumes" . | nindent 4 }}
{{- end -}}
