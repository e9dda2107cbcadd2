{{/*
What follows from the cloud's budget. docs/sizing.md explains the numbers.
*/}}

{{/*
The requests a minute of one replica. Each sidecar elects a leader of its own, so that all replicas
can be busy at once, and none knows what the others spend.
*/}}
{{- define "ghost.budget.share" -}}
{{- max 1 (div (int .Values.cosmos.requestsPerMinute) (int .Values.controller.replicas)) -}}
{{- end -}}

{{/*
How many volumes are made, and how many attached, at once. An attachment takes little more than one
request and about ten seconds, so that a fifth of the minute's requests keeps the budget busy, and a
few stuck ones do not keep the others waiting.
*/}}
{{- define "ghost.budget.workers" -}}
{{- min 100 (max 10 (div (int (include "ghost.budget.share" .)) 5)) -}}
{{- end -}}

{{/* The same for attaching alone, where a number may be given. */}}
{{- define "ghost.budget.attachers" -}}
{{- default (include "ghost.budget.workers" .) .Values.sidecars.attacher.workerThreads | int -}}
{{- end -}}

{{/*
How often the attacher lists all volumes, 200 to a request: once a minute, or so seldom that it
takes a twentieth of the hour's requests.
*/}}
{{- define "ghost.budget.reconcile" -}}
{{- if .Values.sidecars.attacher.reconcileSync -}}
{{- .Values.sidecars.attacher.reconcileSync -}}
{{- else -}}
{{- $pages := div (add (int .Values.controller.expectedVolumes) 199) 200 -}}
{{- $hour := int .Values.cosmos.requestsPerHour -}}
{{- max 60 (div (add (mul $pages 72000) $hour -1) $hour) -}}s
{{- end -}}
{{- end -}}
