{{/*
What the schema cannot say of the values: what needs two of them, or the cluster. Each message says
which value it is about and what to do.
*/}}
{{- define "ghost.refusals" -}}
{{- $cosmos := .Values.cosmos -}}
{{- if not (regexMatch "^[a-z][a-z0-9]{0,19}$" .Values.clusterId) -}}
{{- fail (printf "clusterId %q must begin with a small letter and have at most 20 small letters and digits, no dash" .Values.clusterId) -}}
{{- end -}}
{{- $label := "[a-z0-9]([a-z0-9-]*[a-z0-9])?" -}}
{{- if or (gt (len .Values.driverName) 63) (not (regexMatch (printf "^%s([.]%s)*$" $label $label) .Values.driverName)) -}}
{{- fail (printf "driverName %q must be a domain name of at most 63 small letters, digits, dashes and dots" .Values.driverName) -}}
{{- end -}}
{{- if not (regexMatch "^[1-9][0-9]*(Gi|Ti)?$" .Values.controller.defaultSize) -}}
{{- fail (printf "controller.defaultSize %q must be a size such as 10Gi or 1Ti" .Values.controller.defaultSize) -}}
{{- end -}}
{{- if not (regexMatch "^https?://[^/ ]+" .Values.node.metadataUrl) -}}
{{- fail (printf "node.metadataUrl %q must begin with http://HOST or https://HOST" .Values.node.metadataUrl) -}}
{{- end -}}
{{- if not (regexMatch "^([1-9][0-9]*|[1-9][0-9]?%|100%)$" (toString .Values.node.maxUnavailable)) -}}
{{- fail (printf "node.maxUnavailable %v must be a number of nodes or a part of them, such as 1 or 10%%, and not 0" .Values.node.maxUnavailable) -}}
{{- end -}}
{{- $period := int .Values.csiDriver.nodeAllocatableUpdatePeriodSeconds -}}
{{- if and (gt $period 0) (lt $period 10) -}}
{{- fail (printf "csiDriver.nodeAllocatableUpdatePeriodSeconds %d must be 0 or at least 10, which is Kubernetes' own rule" $period) -}}
{{- end -}}
{{- if .Values.controller.enabled -}}
{{- if not (regexMatch "^(https://[^/ ]+|http://(127[.][0-9.]+|localhost|\\[::1\\])(:[0-9]+)?)(/[^ ]*)?$" $cosmos.url) -}}
{{- fail (printf "cosmos.url %q must be the https address of the disk API, such as https://api.example.org" $cosmos.url) -}}
{{- end -}}
{{- if hasSuffix "/v2" (trimSuffix "/" $cosmos.url) -}}
{{- fail (printf "cosmos.url %q must not end in /v2, which ghost adds" $cosmos.url) -}}
{{- end -}}
{{- if and $cosmos.ca (not (contains "-----BEGIN CERTIFICATE-----" $cosmos.ca)) -}}
{{- fail "cosmos.ca must be certificates in PEM, the text and not the name of a file: use --set-file cosmos.ca=FILE" -}}
{{- end -}}
{{- if and $cosmos.token $cosmos.existingSecret -}}
{{- fail "cosmos.token and cosmos.existingSecret are both given; give one of them" -}}
{{- end -}}
{{- if not (or $cosmos.token $cosmos.existingSecret) -}}
{{- fail "there is no API token: give cosmos.existingSecret, the name of a Secret with the key \"token\", or cosmos.token" -}}
{{- end -}}
{{- if lt (int $cosmos.requestsPerMinute) (mul 8 (int .Values.controller.replicas)) -}}
{{- fail (printf "cosmos.requestsPerMinute %v leaves each of %v replicas fewer than 8 requests a minute; raise it or lower controller.replicas" $cosmos.requestsPerMinute .Values.controller.replicas) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.snapshots.enabled (not (.Capabilities.APIVersions.Has "snapshot.storage.k8s.io/v1")) -}}
{{- fail "snapshots.enabled is true, and the cluster has no VolumeSnapshots: install the CRDs of snapshot.storage.k8s.io/v1 and the snapshot-controller (docs/install.md), or set snapshots.enabled=false. With helm template say --api-versions snapshot.storage.k8s.io/v1" -}}
{{- end -}}
{{- if not (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1") -}}
{{- range $name := list "podMonitor" "rules" -}}
{{- if index $.Values.monitoring $name "enabled" -}}
{{- fail (printf "monitoring.%s.enabled is true, and the cluster has no monitoring.coreos.com/v1: install the Prometheus operator first, or leave it off. With helm template say --api-versions monitoring.coreos.com/v1" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $defaults := 0 -}}
{{- range .Values.storageClasses -}}{{- if .default -}}{{- $defaults = add $defaults 1 -}}{{- end -}}{{- end -}}
{{- if gt (int $defaults) 1 -}}
{{- fail "more than one of storageClasses is the default; a cluster has one" -}}
{{- end -}}
{{- end -}}
