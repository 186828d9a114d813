{{/* Names and labels. */}}

{{- define "stanzaq.name" -}}
{{ .Values.nameOverride | default .Chart.Name }}
{{- end -}}

{{- define "stanzaq.fullname" -}}
{{- $own := include "stanzaq.name" . -}}
{{- $name := .Values.fullnameOverride | default (ternary .Release.Name (printf "%s-%s" .Release.Name $own) (contains $own .Release.Name)) -}}
{{- /* A CronJob may have 52 letters, suffix included. */ -}}
{{- $name | trunc 42 | trimSuffix "-" -}}
{{- end -}}

{{/* The labels of all objects; takes (list $ component), with "" for objects shared by all components. */}}
{{- define "stanzaq.labels" -}}
{{- $root := index . 0 -}}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
{{ include "stanzaq.selector" . }}
{{- end -}}

{{- define "stanzaq.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "stanzaq.name" $root | quote }}
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
{{- with index . 1 }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}

{{/* The metadata of a pod; takes (list $ component annotations), the latter as text. */}}
{{- define "stanzaq.podMetadata" -}}
{{- $root := index . 0 -}}
labels:
  {{- include "stanzaq.labels" . | nindent 2 }}
  {{- with $root.Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- if or (index . 2) $root.Values.podAnnotations }}
annotations:
  {{- with index . 2 }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with $root.Values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* Takes (list $ component suffix) and gives name, namespace and labels. */}}
{{- define "stanzaq.metadata" -}}
{{- $root := index . 0 -}}
name: "{{ include "stanzaq.fullname" $root }}{{ with index . 2 }}-{{ . }}{{ end }}"
namespace: {{ $root.Release.Namespace | quote }}
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

{{/* The minimum number of replicas of a door. */}}
{{- define "stanzaq.replicas" -}}
{{- if include "stanzaq.autoscaler" . }}{{ int .autoscaling.minReplicas }}{{ else if kindIs "invalid" .replicas }}2{{ else }}{{ int .replicas }}{{ end -}}
{{- end -}}

{{/* Its maximum. */}}
{{- define "stanzaq.mostReplicas" -}}
{{- if include "stanzaq.autoscaler" . }}{{ int .autoscaling.maxReplicas }}{{ else }}{{ include "stanzaq.replicas" . }}{{ end -}}
{{- end -}}

{{/* "true" if each replica of the door xmpp has its own domain. */}}
{{- define "stanzaq.ordinal" -}}
{{- if and (eq .Values.xmpp.profile "prosody") (eq .Values.xmpp.prosody.mode "ordinal") }}true{{ end -}}
{{- end -}}

{{/* "true" if one replica of the door xmpp is connected and the others wait. */}}
{{- define "stanzaq.standby" -}}
{{- if and (eq .Values.xmpp.profile "prosody") (eq .Values.xmpp.prosody.mode "standby") }}true{{ end -}}
{{- end -}}

{{/* "true" if reports run as applications of the Spark operator: they are requested, and the cluster has this kind. */}}
{{- define "stanzaq.operated" -}}
{{- if and .Values.report.sparkOperator.enabled (.Capabilities.APIVersions.Has "sparkoperator.k8s.io/v1beta2") }}true{{ end -}}
{{- end -}}

{{/* Takes (list domain number): the domain of one replica. */}}
{{- define "stanzaq.ordinalDomain" -}}
{{- $labels := splitList "." (index . 0) -}}
{{- printf "%s-%s" (first $labels) (index . 1) -}}
{{- with rest $labels }}.{{ join "." . }}{{ end -}}
{{- end -}}

{{/* The labels that the metrics of this release have, however they are scraped. */}}
{{- define "stanzaq.series" -}}
namespace="{{ .Release.Namespace }}",app_kubernetes_io_instance="{{ .Release.Name }}"
{{- end -}}

{{/* The labels of its nodes that are for work, not for dead letters. */}}
{{- define "stanzaq.queues" -}}
{{ include "stanzaq.series" . }},node!~{{ quote .Values.monitoring.deadLetters }}
{{- end -}}

{{/* What waits and is due: neither delayed nor in wait for others. What is held back by its key counts. Takes the labels of the series. */}}
{{- define "stanzaq.due" -}}
{{- printf "stanzaq_node_waiting{%s} - stanzaq_node_delayed{%[1]s} - stanzaq_node_dependent{%[1]s}" . -}}
{{- end -}}

{{/*
What waits for frontends: items that may go out, of nodes with subscribers. Each frontend reports all nodes, so they are counted once per node.
A door that may have no frontend also starts one for other queues, whose workers could not subscribe to it. Takes (list $ minReplicas).
*/}}
{{- define "stanzaq.waiting" -}}
{{- $count := "sum(max by (node) (stanzaq_node_eligible{%s}) * (max by (node) (stanzaq_node_subscribers{%[1]s}) %s bool 0))" -}}
{{- printf $count (include "stanzaq.series" (index . 0)) ">" -}}
{{- if eq (index . 1) 0 -}}
{{- printf " + (clamp_max(%s, 1) or vector(0))" (printf $count (include "stanzaq.queues" (index . 0)) "==") -}}
{{- end -}}
{{- end -}}
