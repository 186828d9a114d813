{{/* The alerts. Each frontend reports all nodes and Redis, so gauges are a maximum over frontends; each frontend has its own counters, so these are summed. */}}

{{- define "stanzaq.rules" -}}
{{- $series := include "stanzaq.series" . -}}
{{- $queues := include "stanzaq.queues" . -}}
{{- $limits := .Values.monitoring.rules -}}
- alert: StanzaqBacklog
  expr: {{ printf "max by (node) (%s) > %d" (include "stanzaq.due" $queues) (int $limits.backlog) | quote }}
  for: 10m
  labels: {severity: warning}
  annotations:
    summary: '{{ `{{ $value }} items wait in {{ $labels.node }}` }}'
    description: Workers do not keep up; check that they run and have credit, and add more.
- alert: StanzaqItemsAge
  expr: {{ printf "max by (node) (stanzaq_node_oldest_seconds{%s}) > %d" $queues (int $limits.oldestSeconds) | quote }}
  for: 5m
  labels: {severity: warning}
  annotations:
    summary: '{{ `The oldest item of {{ $labels.node }} has waited for {{ $value | humanizeDuration }}` }}'
    description: Nobody takes it; check that the node has subscribers with free credit.
- alert: StanzaqPartitionsUnowned
  # The oldest item is young where leases or a collection take what nobody owns.
  expr: {{ printf "max by (node) (stanzaq_node_partitions_unowned{%s}) > 0 and max by (node) (stanzaq_node_oldest_seconds{%[1]s}) > 60" $queues | quote }}
  for: 10m
  labels: {severity: warning}
  annotations:
    summary: '{{ `{{ $value }} partitions of {{ $labels.node }} have no owner, and items wait` }}'
    description: stanzaq doctor names them. Start members of its group, with at least as much credit as it has partitions.
- alert: StanzaqLocksExpire
  expr: sum(rate(stanzaq_expired_total{ {{- $series -}} }[10m])) / sum(rate(stanzaq_delivered_total{ {{- $series -}} }[10m])) > {{ $limits.expiredRatio }}
  for: 10m
  labels: {severity: warning}
  annotations:
    summary: '{{ `{{ $value | humanizePercentage }} of the deliveries end in an expired lock` }}'
    description: Workers hang, or need longer than stanzaq#lock_seconds; raise it or let them renew.
- alert: StanzaqDeadLetters
  expr: sum(increase(stanzaq_dead_lettered_total{ {{- $series -}} }[15m])) > 0
  labels: {severity: warning}
  annotations:
    summary: '{{ `{{ $value | humanize }} items became dead letters in 15 minutes` }}'
    description: Look at the reasons in the dead letter nodes, and redrive what is worth it.
{{- range $door := include "stanzaq.doors" . | fromJsonArray }}
{{- if gt (int (include "stanzaq.replicas" (index $.Values $door))) 0 }}
- alert: StanzaqNoReadyFrontend
  # Without any series there is no maximum and so no alert; hence the vector.
  expr: (max(stanzaq_ready{ {{- $series }},app_kubernetes_io_component="{{ $door }}"}) or vector(0)) < 1
  for: 1m
  labels: {severity: critical, door: {{ $door }}}
  annotations:
    summary: 'No frontend of the door {{ $door }} is ready'
    description: Its /readyz says why; the queue itself is safe in Redis.
{{- end }}
{{- end }}
- alert: StanzaqRedisMemory
  # Only masters with a maxmemory.
  expr: max(stanzaq_redis_used_bytes{ {{- $series -}} } / (stanzaq_redis_limit_bytes{ {{- $series -}} } > 0)) > {{ $limits.redisMemoryRatio }}
  for: 5m
  labels: {severity: critical}
  annotations:
    summary: '{{ `A Redis master has used {{ $value | humanizePercentage }} of its maxmemory` }}'
    description: Publishers are refused when it is full; let workers drain the queue, or give Redis more memory.
- alert: StanzaqNodeFull
  expr: {{ printf "sum by (node) (rate(stanzaq_refused_total{%s,reason=\"node-full\"}[5m])) > 0" $series | quote }}
  for: 5m
  labels: {severity: warning}
  annotations:
    summary: '{{ `{{ $labels.node }} is full: publishes are refused` }}'
    description: Add workers, or raise its pubsub#max_items.
- alert: StanzaqQuotaUsedUp
  expr: {{ printf "sum(rate(stanzaq_quota_refused_total{%s}[5m])) > 0" $series | quote }}
  for: 5m
  labels: {severity: warning}
  annotations:
    summary: An owner or a domain has used up its quota, and publishes are refused
    description: stanzaq quota list says whose; raise it, or let workers catch up.
- alert: StanzaqRedisRefuses
  expr: {{ printf "sum(rate(stanzaq_refused_total{%s,reason=\"unavailable\"}[5m])) > 0" $series | quote }}
  for: 5m
  labels: {severity: critical}
  annotations:
    summary: Redis is away, does not answer in time, or cannot write
    description: stanzaq doctor says which; with a full disk (MISCONF) it refuses changes, or ends with appendfsync always.
- alert: StanzaqRedisSlow
  expr: {{ printf "1 - sum(rate(stanzaq_command_seconds_bucket{%s,command=\"Publish\",le=\"0.25\"}[5m])) / sum(rate(stanzaq_command_seconds_count{%s,command=\"Publish\"}[5m])) > 0.5" $series $series | quote }}
  for: 10m
  labels: {severity: warning}
  annotations:
    summary: '{{ `{{ $value | humanizePercentage }} of the publishes take longer than 0.25 s` }}'
    description: stanzaq doctor says how fast Redis answers, and what to look for.
- alert: StanzaqFailedLogins
  expr: {{ printf "sum by (door) (rate(stanzaq_failed_logins_total{%s}[5m])) > 1" $series | quote }}
  for: 10m
  labels: {severity: warning}
  annotations:
    summary: '{{ `{{ $value | humanize }} logins a second fail at the door {{ $labels.door }}` }}'
    description: The log names accounts and addresses; somebody guesses, or has an old password.
{{- with $limits.objective }}
{{- $own := printf "%s,node=~%s" $series (quote .nodes) }}
{{- range $window := list "5m" "30m" "1h" "2h" "6h" "1d" "3d" }}
- record: stanzaq:wait_misses:ratio_rate{{ $window }}
  labels: {namespace: {{ quote $.Release.Namespace }}, app_kubernetes_io_instance: {{ quote $.Release.Name }}}
  expr: |-
    1 - sum by (node) (rate(stanzaq_wait_seconds_bucket{ {{- $own }},le="{{ printf "%.1f" (float64 $limits.objective.seconds) }}"}[{{ $window }}]))
    / sum by (node) (rate(stanzaq_wait_seconds_count{ {{- $own -}} }[{{ $window }}]))
{{- end }}
{{- $misses := printf "stanzaq:wait_misses:ratio_rate%%s{%s}" $series }}
{{- $promise := printf "{{ $value | humanizePercentage }} of the items of {{ $labels.node }} waited longer than %v s" .seconds }}
- alert: StanzaqWaitsBurnFast
  expr: |-
    {{- include "stanzaq.burns" (list $misses . "14.4" "1h" "5m") | nindent 4 }}
    or
    {{- include "stanzaq.burns" (list $misses . "6" "6h" "30m") | nindent 4 }}
  labels: {severity: critical}
  annotations:
    summary: '{{ $promise }}'
    description: At this pace the budget of 30 days is used up within five days. Add workers, or find out what stops them.
- alert: StanzaqWaitsBurnSlowly
  expr: |-
    {{- include "stanzaq.burns" (list $misses . "3" "1d" "2h") | nindent 4 }}
    or
    {{- include "stanzaq.burns" (list $misses . "1" "3d" "6h") | nindent 4 }}
  labels: {severity: warning}
  annotations:
    summary: '{{ $promise }}'
    description: At this pace the objective of 30 days will be missed. Plan more workers, or a longer wait.
{{- end }}
{{- end -}}

{{/* Whether the budget burns by so many times the pace that would use it up in 30 days, for long enough and still. */}}
{{- define "stanzaq.burns" -}}
{{- $misses := index . 0 }}{{ $budget := printf "%s * (1 - %v)" (index . 2) (index . 1).ratio -}}
({{ printf $misses (index . 3) }} > {{ $budget }} and {{ printf $misses (index . 4) }} > {{ $budget }})
{{- end -}}
