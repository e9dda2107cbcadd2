{{/*
One stock sidecar of the controller; takes a dict of the context, its name, its port and its own
arguments. They all wait for the driver's socket, elect a leader among the replicas and tell of
themselves in the same way.
*/}}
{{- define "ghost.sidecar" -}}
{{- $values := index .context.Values.sidecars .name -}}
- name: {{ .name }}
  image: {{ $values.image }}
  imagePullPolicy: {{ .context.Values.image.pullPolicy }}
  args:
    - --csi-address=/csi/csi.sock
    - --leader-election
    - --http-endpoint=:{{ .port }}
    - --timeout={{ $values.timeout }}
    - --kube-api-qps={{ .context.Values.sidecars.kubeApiQps }}
    - --kube-api-burst={{ .context.Values.sidecars.kubeApiBurst }}
    - --v={{ .context.Values.sidecars.logLevel }}
    {{- range .arguments }}
    - {{ . }}
    {{- end }}
    {{- range $values.extraArgs }}
    - {{ . | quote }}
    {{- end }}
  {{- with .context.Values.controller.env }}
  env:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  ports:
    - { name: {{ .name }}, containerPort: {{ .port }} }
  # Says no when it leads and could not renew its lease.
  livenessProbe:
    httpGet: { path: /healthz/leader-election, port: {{ .name }} }
    initialDelaySeconds: 10
    periodSeconds: 20
    timeoutSeconds: 10
    failureThreshold: 3
  securityContext:
    {{- include "ghost.restricted" . | nindent 4 }}
  terminationMessagePolicy: FallbackToLogsOnError
  resources:
    {{- toYaml $values.resources | nindent 4 }}
  volumeMounts:
    - { name: socket, mountPath: /csi }
    - name: kubernetes-token
      mountPath: /var/run/secrets/kubernetes.io/serviceaccount
      readOnly: true
{{- end -}}

{{/* What every container of the controller may do: nothing but to compute and to speak. */}}
{{- define "ghost.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end -}}
