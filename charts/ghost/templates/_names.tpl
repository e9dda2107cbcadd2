{{/* The name of the release with that of the chart, which it often has in it already. */}}
{{- define "ghost.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What selects the pods of one half; takes (list context half). It can never change. */}}
{{- define "ghost.selector" -}}
{{- $context := index . 0 -}}
app.kubernetes.io/name: {{ default $context.Chart.Name $context.Values.nameOverride }}
app.kubernetes.io/instance: {{ $context.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* The labels of everything; takes (list context component). */}}
{{- define "ghost.labels" -}}
{{- $context := index . 0 -}}
{{ include "ghost.selector" . }}
app.kubernetes.io/version: {{ $context.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $context.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $context.Chart.Name $context.Chart.Version }}
{{- end -}}

{{- define "ghost.image" -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}

{{- define "ghost.secret" -}}
{{ default (printf "%s-cosmos" (include "ghost.fullname" .)) .Values.cosmos.existingSecret }}
{{- end -}}

{{/* Where the cloud's certificates are, if they are given. */}}
{{- define "ghost.ca" -}}
{{ include "ghost.fullname" . }}-cosmos-ca
{{- end -}}

{{/* A name as the sidecars' leader election writes it into the name of a lease. */}}
{{- define "ghost.leaseName" -}}
{{ regexReplaceAll "[^a-zA-Z0-9-]" . "-" }}
{{- end -}}
