{{/* Names and labels. */}}

{{- define "stanzaq.fullname" -}}
{{- $name := ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) (contains .Chart.Name .Release.Name) -}}
{{- /* A CronJob may have 52 letters, suffix included. */ -}}
{{- $name | trunc 42 | trimSuffix "-" -}}
{{- end -}}

{{/* Of all objects; takes (list $ component), the component "" for those that belong to all. */}}
{{- define "stanzaq.labels" -}}
{{- $root := index . 0 -}}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
{{ include "stanzaq.selector" . }}
{{- end -}}

{{- define "stanzaq.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ $root.Chart.Name }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
{{- with index . 1 }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}

{{/* Takes (list $ component suffix) and gives name, namespace and labels. */}}
{{- define "stanzaq.metadata" -}}
{{- $root := index . 0 -}}
name: {{ include "stanzaq.fullname" $root }}{{ with index . 2 }}-{{ . }}{{ end }}
namespace: {{ $root.Release.Namespace }}
labels:
  {{- include "stanzaq.labels" (list $root (index . 1)) | nindent 2 }}
{{- end -}}

{{/* Takes (list $ image). */}}
{{- define "stanzaq.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default $root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* The doors that are on, as a list in JSON. */}}
{{- define "stanzaq.doors" -}}
{{- $doors := list -}}
{{- range $door := list "xmpp" "rest" "amqp" -}}
{{- if (index $.Values $door).enabled }}{{ $doors = append $doors $door }}{{ end -}}
{{- end -}}
{{- toJson $doors -}}
{{- end -}}

{{/* "hpa", "keda" or nothing, for a door's values. */}}
{{- define "stanzaq.autoscaler" -}}
{{- if .autoscaling.hpa.enabled }}hpa{{ else if .autoscaling.keda.enabled }}keda{{ end -}}
{{- end -}}

{{/* How many replicas a door has at least. */}}
{{- define "stanzaq.replicas" -}}
{{- if include "stanzaq.autoscaler" . }}{{ int .autoscaling.minReplicas }}{{ else if kindIs "invalid" .replicas }}2{{ else }}{{ int .replicas }}{{ end -}}
{{- end -}}

{{/* "true" where replicas of the door xmpp have domains of their own. */}}
{{- define "stanzaq.ordinal" -}}
{{- if and (eq .Values.xmpp.profile "prosody") (eq .Values.xmpp.prosody.mode "ordinal") }}true{{ end -}}
{{- end -}}

{{/* "true" where one replica of the door xmpp is connected and the others wait. */}}
{{- define "stanzaq.standby" -}}
{{- if and (eq .Values.xmpp.profile "prosody") (eq .Values.xmpp.prosody.mode "standby") }}true{{ end -}}
{{- end -}}

{{/* "true" where reports are applications of the Spark operator: it is wanted, and the cluster knows them. */}}
{{- define "stanzaq.operated" -}}
{{- if and .Values.report.sparkOperator.enabled (.Capabilities.APIVersions.Has "sparkoperator.k8s.io/v1beta2") }}true{{ end -}}
{{- end -}}

{{/* Takes (list domain number): the domain of one replica. */}}
{{- define "stanzaq.ordinalDomain" -}}
{{- $labels := splitList "." (index . 0) -}}
{{- printf "%s-%s" (first $labels) (index . 1) -}}
{{- with rest $labels }}.{{ join "." . }}{{ end -}}
{{- end -}}

{{/* What the metrics of this release bear, however they are scraped. */}}
{{- define "stanzaq.series" -}}
namespace="{{ .Release.Namespace }}",app_kubernetes_io_instance="{{ .Release.Name }}"
{{- end -}}

{{/* Each frontend tells of all nodes: what waits is counted once for each node. */}}
{{- define "stanzaq.waiting" -}}
sum(max by (node) (stanzaq_node_waiting{ {{- include "stanzaq.series" . -}} }))
{{- end -}}
