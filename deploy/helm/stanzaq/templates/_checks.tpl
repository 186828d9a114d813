{{/* What the schema cannot check: contradicting and missing values. Each check fails with one sentence. */}}

{{- define "stanzaq.check" -}}
{{- $v := .Values -}}
{{- $doors := include "stanzaq.doors" . | fromJsonArray -}}
{{- if not $doors -}}
{{- fail "xmpp.enabled, rest.enabled and amqp.enabled are all false: turn one door on" -}}
{{- end -}}

{{- $sources := list -}}
{{- if $v.redis.url }}{{ $sources = append $sources "redis.url" }}{{ end -}}
{{- if $v.redis.existingSecret.name }}{{ $sources = append $sources "redis.existingSecret.name" }}{{ end -}}
{{- if $v.redis.development.enabled }}{{ $sources = append $sources "redis.development.enabled" }}{{ end -}}
{{- if not $sources -}}
{{- fail "redis.url is not set: write the URL of a Redis, or set redis.existingSecret.name or redis.development.enabled" -}}
{{- else if gt (len $sources) 1 -}}
{{- fail (printf "%s are both set: keep one of them" (join " and " $sources)) -}}
{{- end -}}
{{- if and $v.redis.url (not (regexMatch "^rediss?(\\+(cluster|sentinel))?://[^/?]" $v.redis.url)) -}}
{{- fail "redis.url is not the URL of a Redis on the network: write redis://HOST:PORT/0, or rediss:// for TLS, with +cluster or +sentinel for several" -}}
{{- end -}}
{{- if and $v.redis.url $v.networkPolicy.enabled -}}
{{- $usual := ternary "26379" "6379" (contains "+sentinel:" $v.redis.url) -}}
{{- range $host := regexReplaceAll "^[a-z+]+://([^@/?]*@)?|[/?].*$" $v.redis.url "" | splitList "," -}}
{{- $port := regexFind ":[0-9]+$" (regexReplaceAll "\\[.*\\]" $host "") | trimPrefix ":" | default $usual -}}
{{- if not (has $port ($v.redis.ports | toJson | fromJsonArray | join " " | splitList " ")) -}}
{{- fail (printf "redis.url uses port %s and redis.ports does not allow it: add it there" $port) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $v.redis.tls.existingSecret $v.redis.url (not (hasPrefix "rediss" $v.redis.url)) -}}
{{- fail "redis.tls.existingSecret is set but redis.url does not use TLS: write rediss://" -}}
{{- end -}}
{{- if and $v.redis.tls.existingSecret $v.redis.development.enabled -}}
{{- fail "redis.tls.existingSecret is set, but redis.development.enabled has no TLS: remove one of them" -}}
{{- end -}}
{{- if and $v.redis.tls.clientCertificate (not $v.redis.tls.existingSecret) -}}
{{- fail "redis.tls.clientCertificate is true but redis.tls.existingSecret is not set: name the Secret that has tls.crt and tls.key" -}}
{{- end -}}

{{- if $v.xmpp.enabled -}}
{{- if not $v.xmpp.server }}{{ fail "xmpp.server is not set: write HOST:PORT, where the XMPP server accepts components" }}{{ end -}}
{{- if not $v.xmpp.domain }}{{ fail "xmpp.domain is not set: write the component's domain" }}{{ end -}}
{{- if and $v.xmpp.secret $v.xmpp.existingSecret.name -}}
{{- fail "xmpp.secret and xmpp.existingSecret.name are both set: keep one of them" -}}
{{- else if not (or $v.xmpp.secret $v.xmpp.existingSecret.name) -}}
{{- fail "xmpp.secret is not set: write the component's secret, or set xmpp.existingSecret.name" -}}
{{- end -}}
{{- if and $v.xmpp.tls.existingSecret (not $v.xmpp.tls.enabled) -}}
{{- fail "xmpp.tls.existingSecret is set and xmpp.tls.enabled is not: turn TLS on or remove the Secret" -}}
{{- end -}}
{{- if and (eq $v.xmpp.profile "prosody") (include "stanzaq.autoscaler" $v.xmpp) -}}
{{- fail (printf "xmpp.profile prosody and xmpp.autoscaling.%s.enabled contradict each other: each connection needs a domain that Prosody knows, so set xmpp.replicas" (include "stanzaq.autoscaler" $v.xmpp)) -}}
{{- end -}}
{{- end -}}

{{- range $door := $doors -}}
{{- $d := index $v $door -}}
{{- if and $d.autoscaling.hpa.enabled $d.autoscaling.keda.enabled -}}
{{- fail (printf "%s.autoscaling.hpa.enabled and %s.autoscaling.keda.enabled are both true: keep one autoscaler" $door $door) -}}
{{- end -}}
{{- with include "stanzaq.autoscaler" $d -}}
{{- if not (kindIs "invalid" $d.replicas) -}}
{{- fail (printf "%s.replicas and %s.autoscaling.%s.enabled are both set: an autoscaler decides the number, so remove %s.replicas" $door $door . $door) -}}
{{- end -}}
{{- if gt (int $d.autoscaling.minReplicas) (int $d.autoscaling.maxReplicas) -}}
{{- fail (printf "%s.autoscaling.minReplicas is above %s.autoscaling.maxReplicas: raise one or lower the other" $door $door) -}}
{{- end -}}
{{- if and (eq . "hpa") (eq (int $d.autoscaling.minReplicas) 0) -}}
{{- fail (printf "%s.autoscaling.minReplicas is 0, from which a HorizontalPodAutoscaler cannot scale up: set 1, or %s.autoscaling.keda.enabled" $door $door) -}}
{{- end -}}
{{- if not (or $d.autoscaling.waitingPerReplica $d.autoscaling.cpuPercent) -}}
{{- fail (printf "%s.autoscaling.waitingPerReplica and %s.autoscaling.cpuPercent are both 0: an autoscaler needs one of them" $door $door) -}}
{{- end -}}
{{- if and $d.autoscaling.cpuPercent (not (dig "requests" "cpu" "" $d.resources)) -}}
{{- fail (printf "%s.autoscaling.cpuPercent is a share of %s.resources.requests.cpu, which is not set" $door $door) -}}
{{- end -}}
{{- if and (eq (int $d.autoscaling.minReplicas) 0) (not $d.autoscaling.waitingPerReplica) -}}
{{- fail (printf "%s.autoscaling.minReplicas is 0 but no waiting item would start a pod: set %s.autoscaling.waitingPerReplica" $door $door) -}}
{{- end -}}
{{- if and (eq . "keda") $d.autoscaling.waitingPerReplica (not $d.autoscaling.keda.prometheus) -}}
{{- fail (printf "%s.autoscaling.keda.prometheus is not set: write the URL of the Prometheus that knows stanzaq_node_eligible" $door) -}}
{{- end -}}
{{- if and $d.autoscaling.waitingPerReplica (eq $v.monitoring.monitor "none") -}}
{{- fail (printf "%s.autoscaling.%s.enabled needs metrics with the labels of a monitor: set monitoring.monitor to pod or service" $door .) -}}
{{- end -}}
{{- if eq (int $d.autoscaling.minReplicas) 0 -}}
{{- $others := 0 -}}
{{- range $other := without $doors $door }}{{ $others = add $others (int (include "stanzaq.replicas" (index $v $other))) }}{{ end -}}
{{- if eq (int $others) 0 -}}
{{- fail (printf "%s.autoscaling.minReplicas is 0 and no other door stays up: without any frontend nobody counts waiting items, so set 1 or turn another door on" $door) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- if $v.workers.scaled -}}
{{- if not $v.workers.prometheus -}}
{{- fail "workers.prometheus is not set: write the URL of the Prometheus that knows stanzaq_node_waiting" -}}
{{- else if eq $v.monitoring.monitor "none" -}}
{{- fail "workers.scaled needs metrics with the labels of a monitor: set monitoring.monitor to pod or service" -}}
{{- end -}}
{{- end -}}
{{- range $v.workers.scaled -}}
{{- if gt (int .minReplicas) (int .maxReplicas) -}}
{{- fail (printf "workers.scaled: %s has minReplicas above maxReplicas: raise one or lower the other" .deployment) -}}
{{- end -}}
{{- end -}}
{{- $set := include "stanzaq.configuration" . | fromYaml -}}
{{- range $v.extraEnv -}}
{{- if or (hasKey $set .name) (hasPrefix "STANZAQ_" .name) -}}
{{- fail (printf "extraEnv names %s, which the chart sets: use settings or the value that it is made of" .name) -}}
{{- end -}}
{{- end -}}
{{- range $v.extraVolumes -}}
{{- if has .name (list "secrets" "redis-tls" "xmpp-tls" "amqp-tls" "history" "scratch") -}}
{{- fail (printf "extraVolumes names %s, which is the chart's own: choose another name" .name) -}}
{{- end -}}
{{- end -}}
{{- range $label, $_ := $v.podLabels -}}
{{- if hasPrefix "app.kubernetes.io/" $label -}}
{{- fail (printf "podLabels has %s, by which the chart selects its pods: choose another label" $label) -}}
{{- end -}}
{{- end -}}
{{- range $name, $_ := $v.podAnnotations -}}
{{- if hasPrefix "checksum/" $name -}}
{{- fail (printf "podAnnotations has %s, which the chart sets: choose another annotation" $name) -}}
{{- end -}}
{{- end -}}

{{- if $v.rest.ingress.enabled -}}
{{- if not $v.rest.enabled }}{{ fail "rest.ingress.enabled is true but rest.enabled is not: turn the door on or its Ingress off" }}{{ end -}}
{{- if not $v.rest.ingress.host }}{{ fail "rest.ingress.host is not set: write the host name that clients use" }}{{ end -}}
{{- end -}}
{{- if and $v.report.capacity.enabled (not $v.report.collect.enabled) (not $v.report.volume.existingClaim) -}}
{{- fail "report.capacity.enabled needs a history: set report.collect.enabled, or report.volume.existingClaim to one that has it" -}}
{{- end -}}
{{- if and $v.monitoring.rules.enabled (eq $v.monitoring.monitor "none") -}}
{{- fail "monitoring.rules.enabled needs metrics with the labels of a monitor: set monitoring.monitor to pod or service" -}}
{{- end -}}
{{- if $v.test.jid -}}
{{- if not $v.xmpp.enabled }}{{ fail "test.jid is set and xmpp.enabled is false: the test uses XMPP, so remove test.jid" }}{{ end -}}
{{- if not $v.test.existingSecret.name }}{{ fail "test.existingSecret.name is not set: name the Secret that has the password of test.jid" }}{{ end -}}
{{- if not $v.test.server }}{{ fail "test.server is not set: write HOST:PORT, where clients connect to the XMPP server" }}{{ end -}}
{{- end -}}
{{- if $v.rest.enabled -}}
{{- if and $v.rest.passwords $v.rest.existingSecret.name -}}
{{- fail "rest.passwords and rest.existingSecret.name are both set: keep one of them" -}}
{{- else if not (or $v.rest.passwords $v.rest.existingSecret.name $v.settings.jwt_keys $v.settings.http_anonymous) -}}
{{- fail "rest.enabled is true but nobody may send requests: set rest.passwords or rest.existingSecret.name, or settings.jwt_keys" -}}
{{- end -}}
{{- end -}}
{{- if and (or $v.rest.enabled $v.amqp.enabled) $v.settings.jwt_keys (not (and $v.settings.jwt_issuer $v.settings.jwt_audience)) -}}
{{- fail "settings.jwt_keys needs settings.jwt_issuer and settings.jwt_audience: tokens are taken from one issuer, for one audience" -}}
{{- end -}}
{{- if $v.amqp.enabled -}}
{{- if and $v.amqp.passwords $v.amqp.existingSecret.name -}}
{{- fail "amqp.passwords and amqp.existingSecret.name are both set: keep one of them" -}}
{{- else if and $v.amqp.tls.clientCertificates (not $v.amqp.tls.existingSecret) -}}
{{- fail "amqp.tls.clientCertificates is true but amqp.tls.existingSecret is not set: name the Secret that has ca.crt" -}}
{{- end -}}
{{- $keys := or $v.amqp.eventHubs.keys $v.amqp.eventHubs.existingSecret.name -}}
{{- if and $v.amqp.eventHubs.keys $v.amqp.eventHubs.existingSecret.name -}}
{{- fail "amqp.eventHubs.keys and amqp.eventHubs.existingSecret.name are both set: keep one of them" -}}
{{- else if and $keys $v.settings.amqp_anonymous -}}
{{- fail "amqp.eventHubs and settings.amqp_anonymous both apply to connections with SASL ANONYMOUS: keep one of them" -}}
{{- else if not (or $v.amqp.passwords $v.amqp.existingSecret.name $v.amqp.tls.clientCertificates $v.settings.amqp_anonymous $v.settings.jwt_keys $keys) -}}
{{- fail "amqp.enabled is true but nobody may connect: set amqp.passwords, amqp.existingSecret.name or amqp.tls.clientCertificates" -}}
{{- end -}}
{{- end -}}
{{- end -}}
