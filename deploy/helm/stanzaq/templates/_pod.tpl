{{/* The pod of a door; takes (list $ door). */}}

{{/* Where pods may run and what precedes them, in the words of a pod and of the Spark operator. */}}
{{- define "stanzaq.scheduling" -}}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Placement and security, the same for all pods. */}}
{{- define "stanzaq.placement" -}}
serviceAccountName: {{ include "stanzaq.fullname" . | quote }}
automountServiceAccountToken: false
# A Service named `stanzaq` would put variables such as STANZAQ_PORT into every pod.
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- include "stanzaq.scheduling" . }}
{{- end -}}

{{/* Findings of checkov in every workload that are not faults, with the reason; takes (list $ image). */}}
{{- define "stanzaq.findings" -}}
checkov.io/skip1: CKV_K8S_15=a tag of this image is never moved, so a node need not check it at each start
{{- if not (index . 1).digest }}
checkov.io/skip2: CKV_K8S_43=only whoever builds or mirrors the image knows the digest, so it is a value
{{- end }}
{{- if not (index . 0).Values.podSecurityContext.runAsUser }}
checkov.io/skip5: CKV_K8S_40=the cluster chooses the user
{{- end }}
{{- end -}}

{{/* The variables of frontends and reports; takes $. */}}
{{- define "stanzaq.variables" -}}
- name: STANZAQ_REDIS_URL_FILE
  value: /etc/stanzaq/secrets/redis-url
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "stanzaq.mounts" -}}
- {name: secrets, mountPath: /etc/stanzaq/secrets, readOnly: true}
{{- if .Values.redis.tls.existingSecret }}
- {name: redis-tls, mountPath: /etc/stanzaq/redis-tls, readOnly: true}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* One Secret as a source of the volume `secrets`; takes (list $ values file), the values with `existingSecret`. */}}
{{- define "stanzaq.secretFile" -}}
{{- $existing := (index . 1).existingSecret -}}
- secret:
    name: {{ $existing.name | default (include "stanzaq.fullname" (index . 0)) | quote }}
    items:
      - key: {{ ternary $existing.key (index . 2) (ne $existing.name "") | quote }}
        path: {{ index . 2 }}
{{- end -}}

{{/* The name of a door's passwords in a Secret. */}}
{{- define "stanzaq.passwords" -}}
{{ ternary "http" . (eq . "rest") }}-passwords
{{- end -}}

{{/* The secret files of a pod, beside the URL of Redis; takes (list $ files), each (list values file). */}}
{{- define "stanzaq.volumes" -}}
{{- $root := index . 0 -}}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
      {{- include "stanzaq.secretFile" (list $root $root.Values.redis "redis-url") | nindent 6 }}
      {{- range index . 1 }}
      {{- include "stanzaq.secretFile" (prepend . $root) | nindent 6 }}
      {{- end }}
{{- with $root.Values.redis.tls.existingSecret }}
- name: redis-tls
  secret:
    secretName: {{ . | quote }}
    defaultMode: 0440
{{- end }}
{{- with $root.Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "stanzaq.checksums" -}}
checksum/configuration: {{ include "stanzaq.configuration" . | sha256sum }}
checksum/secrets: {{ print (include "stanzaq.secrets" .) (include "stanzaq.extraSecrets" .) | sha256sum }}
{{- end -}}

{{- define "stanzaq.pod" -}}
{{- $root := index . 0 -}}
{{- $door := index . 1 -}}
{{- $values := index $root.Values $door -}}
{{- $certificate := ternary $root.Values.amqp.tls.existingSecret "" (eq $door "amqp") -}}
{{- $authorities := ternary $root.Values.xmpp.tls.existingSecret "" (eq $door "xmpp") -}}
{{- $preStop := 3 -}}
{{- $passwords := and (ne $door "xmpp") (or $values.passwords $values.existingSecret.name) -}}
{{- $keys := and (eq $door "amqp") (or $values.eventHubs.keys $values.eventHubs.existingSecret.name) -}}
{{- $files := list -}}
{{- if $passwords -}}{{- $files = append $files (list $values (include "stanzaq.passwords" $door)) -}}{{- end -}}
{{- if eq $door "xmpp" -}}{{- $files = append $files (list $values "xmpp-secret") -}}{{- end -}}
{{- if $keys -}}{{- $files = append $files (list $values.eventHubs "event-hubs-keys") -}}{{- end -}}
metadata:
  {{- include "stanzaq.podMetadata" (list $root $door (include "stanzaq.checksums" $root)) | nindent 2 }}
spec:
  {{- include "stanzaq.placement" $root | nindent 2 }}
  {{- with $root.Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- toYaml $root.Values.podSecurityContext | nindent 4 }}
  # A stop takes the pause and at most three drains: over XMPP the core, open requests and the stream each have one.
  terminationGracePeriodSeconds: {{ add $preStop (mul 3 (ceil $root.Values.settings.drain_seconds)) 10 }}
  topologySpreadConstraints:
    {{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
    - maxSkew: 1
      topologyKey: {{ $key }}
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "stanzaq.selector" (list $root $door) | nindent 10 }}
    {{- end }}
  containers:
    - name: {{ $door }}
      image: {{ include "stanzaq.image" (list $root $root.Values.image) }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      args: [serve, {{ $door }}]
      envFrom:
        - configMapRef: {name: {{ include "stanzaq.fullname" $root | quote }}}
      env:
        {{- include "stanzaq.variables" $root | nindent 8 }}
        - {name: STANZAQ_METRICS_BIND, value: "[::]:9464"}
        {{- if eq $door "xmpp" }}
        - {name: STANZAQ_XMPP_SECRET_FILE, value: /etc/stanzaq/secrets/xmpp-secret}
        {{- if $authorities }}
        - {name: STANZAQ_XMPP_CA, value: /etc/stanzaq/xmpp-tls/ca.crt}
        {{- end }}
        {{- if include "stanzaq.ordinal" $root }}
        - name: ORDINAL
          valueFrom:
            fieldRef: {fieldPath: "metadata.labels['apps.kubernetes.io/pod-index']"}
        - {name: STANZAQ_XMPP_DOMAIN, value: {{ include "stanzaq.ordinalDomain" (list $root.Values.xmpp.domain "$(ORDINAL)") | quote }}}
        {{- end }}
        {{- else if eq $door "rest" }}
        - {name: STANZAQ_HTTP_BIND, value: "[::]:8080"}
        {{- if $passwords }}
        - {name: STANZAQ_HTTP_PASSWORDS_FILE, value: /etc/stanzaq/secrets/http-passwords}
        {{- end }}
        {{- else if eq $door "amqp" }}
        - {name: STANZAQ_AMQP_BIND, value: "[::]:5672"}
        {{- if $values.tls.existingSecret }}
        - {name: STANZAQ_AMQP_CERTIFICATE, value: /etc/stanzaq/amqp-tls/tls.crt}
        - {name: STANZAQ_AMQP_KEY, value: /etc/stanzaq/amqp-tls/tls.key}
        {{- if $values.tls.clientCertificates }}
        - {name: STANZAQ_AMQP_CLIENT_CA, value: /etc/stanzaq/amqp-tls/ca.crt}
        {{- end }}
        {{- end }}
        {{- if $passwords }}
        - {name: STANZAQ_AMQP_PASSWORDS_FILE, value: /etc/stanzaq/secrets/amqp-passwords}
        {{- end }}
        {{- if $keys }}
        - {name: STANZAQ_AMQP_EVENT_HUBS_KEYS_FILE, value: /etc/stanzaq/secrets/event-hubs-keys}
        {{- end }}
        {{- end }}
      ports:
        - {name: metrics, containerPort: 9464, protocol: TCP}
        {{- if eq $door "rest" }}
        - {name: http, containerPort: 8080, protocol: TCP}
        {{- else if eq $door "amqp" }}
        - {name: amqp, containerPort: 5672, protocol: TCP}
        {{- end }}
      # Liveness checks only the event loop: a restart repairs neither Redis nor the XMPP server.
      startupProbe:
        httpGet: {path: /livez, port: metrics}
        periodSeconds: 2
        timeoutSeconds: 2
        failureThreshold: 30
      livenessProbe:
        httpGet: {path: /livez, port: metrics}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 3
      readinessProbe:
        {{- if and (eq $door "xmpp") (include "stanzaq.standby" $root) }}
        # A standby replica is not connected; if it were not ready, no rollout would finish.
        httpGet: {path: /livez, port: metrics}
        {{- else }}
        httpGet: {path: /readyz, port: metrics}
        {{- end }}
        periodSeconds: 5
        timeoutSeconds: 3
        failureThreshold: 2
      lifecycle:
        # Services and monitors learn that the pod stops before it refuses anybody.
        preStop:
          exec: {command: [sleep, {{ $preStop | quote }}]}
      resources:
        {{- toYaml $values.resources | nindent 8 }}
      securityContext:
        {{- toYaml $root.Values.securityContext | nindent 8 }}
      volumeMounts:
        {{- include "stanzaq.mounts" $root | nindent 8 }}
        {{- with $certificate }}
        - {name: amqp-tls, mountPath: /etc/stanzaq/amqp-tls, readOnly: true}
        {{- end }}
        {{- with $authorities }}
        - {name: xmpp-tls, mountPath: /etc/stanzaq/xmpp-tls, readOnly: true}
        {{- end }}
  volumes:
    {{- include "stanzaq.volumes" (list $root $files) | nindent 4 }}
    {{- with $certificate }}
    - name: amqp-tls
      secret:
        secretName: {{ . | quote }}
        defaultMode: 0440
    {{- end }}
    {{- with $authorities }}
    - name: xmpp-tls
      secret:
        secretName: {{ . | quote }}
        defaultMode: 0440
    {{- end }}
{{- end -}}
