// One program that is every part of a Kubernetes cluster, etcd and kubectl included. Which one it
// is, the name tells by which it is called. They are one because they share nearly all their code:
// built apart they would take several times the time and the room.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	// Clusters set time zones for CronJobs; this machine may have no table of them.
	_ "time/tzdata"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	// What the parts' own main files link, too: the log format "json", and metrics of their
	// version and of their client.
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
)

// services are the parts that run until they are told to stop.
var services = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

func main() {
	name := filepath.Base(os.Args[0])
	switch name {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kubectl":
		logs.GlogSetter(kubectl.GetLogVerbosity(os.Args))
		util.CheckErr(cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()))
	default:
		service, known := services[name]
		if !known {
			fmt.Fprintf(os.Stderr, "this program is called by the name of a part of Kubernetes, such as kubectl; %q is none\n", name)
			os.Exit(2)
		}
		os.Exit(cli.Run(service()))
	}
}
