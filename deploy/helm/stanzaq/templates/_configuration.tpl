{{/* The data of the ConfigMap and of the Secrets. Pods carry their checksums, so a change restarts them. */}}

{{- define "stanzaq.configuration" -}}
{{- range $name, $value := .Values.settings }}
{{- /* As JSON a number has no exponent. */}}
{{- $text := ternary (join "," $value) (ternary $value (toJson $value) (kindIs "string" $value)) (kindIs "slice" $value) }}
{{- /* The program refuses some that are empty. */}}
{{- with $text }}
STANZAQ_{{ upper $name }}: {{ . | quote }}
{{- end }}
{{- end }}
{{- if and .Values.report.collect.enabled (not (hasKey .Values.settings "journal_records")) }}
STANZAQ_JOURNAL_RECORDS: "100000"
{{- end }}
{{- if .Values.xmpp.enabled }}
STANZAQ_XMPP_SERVER: {{ .Values.xmpp.server | quote }}
STANZAQ_XMPP_DOMAIN: {{ .Values.xmpp.domain | quote }}
{{- if .Values.xmpp.tls.enabled }}
STANZAQ_XMPP_TLS: "true"
{{- end }}
{{- end }}
{{- with .Values.monitoring.traces.endpoint }}
STANZAQ_TRACES: "true"
OTEL_EXPORTER_OTLP_ENDPOINT: {{ . | quote }}
{{- range $name, $value := $.Values.monitoring.traces.variables }}
{{ $name }}: {{ $value | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "stanzaq.redisUrl" -}}
{{- if .Values.redis.development.enabled -}}
redis://{{ include "stanzaq.fullname" . }}-redis:6379/0
{{- else -}}
{{- $options := list -}}
{{- if .Values.redis.tls.existingSecret -}}
{{- $options = append $options "ssl_ca_certs=/etc/stanzaq/redis-tls/ca.crt" -}}
{{- if .Values.redis.tls.clientCertificate -}}
{{- $options = concat $options (list "ssl_certfile=/etc/stanzaq/redis-tls/tls.crt" "ssl_keyfile=/etc/stanzaq/redis-tls/tls.key") -}}
{{- end -}}
{{- end -}}
{{- .Values.redis.url -}}
{{- with $options }}{{ ternary "&" "?" (contains "?" $.Values.redis.url) }}{{ join "&" . }}{{ end -}}
{{- end -}}
{{- end -}}

{{- define "stanzaq.secrets" -}}
{{- if not .Values.redis.existingSecret.name }}
redis-url: {{ include "stanzaq.redisUrl" . | b64enc }}
{{- end }}
{{- if and .Values.xmpp.enabled .Values.xmpp.secret }}
xmpp-secret: {{ .Values.xmpp.secret | b64enc }}
{{- end }}
{{- if and .Values.rest.enabled .Values.rest.passwords }}
http-passwords: {{ .Values.rest.passwords | b64enc }}
{{- end }}
{{- if and .Values.amqp.enabled .Values.amqp.passwords }}
amqp-passwords: {{ .Values.amqp.passwords | b64enc }}
{{- end }}
{{- if and .Values.amqp.enabled .Values.amqp.eventHubs.keys }}
event-hubs-keys: {{ .Values.amqp.eventHubs.keys | b64enc }}
{{- end }}
{{- end -}}

{{/* Secrets among the extra objects: they may be the existing Secrets of other values. */}}
{{- define "stanzaq.extraSecrets" -}}
{{- range .Values.extraObjects }}
{{- if eq .kind "Secret" }}
{{ tpl (toYaml .) $ }}
{{- end }}
{{- end }}
{{- end -}}
