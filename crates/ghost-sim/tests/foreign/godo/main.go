// A foreign client of the simulated cloud: DigitalOcean's own Go library.
//
// It does what a storage driver does and checks that the library understands every answer, the
// errors included. It takes the simulator's address and token from SIM_URL and SIM_TOKEN, starts
// from and leaves an empty cloud, prints a line for each check, and exits with 1 if one failed.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/digitalocean/godo"
)

const region = "ams1"

var (
	passed, failed int
	client         *godo.Client
	ctx            context.Context
)

func check(name string, ok bool, detail ...any) bool {
	if ok {
		passed++
		fmt.Println("ok    ", name)
	} else {
		failed++
		fmt.Println("FAILED", name, detail)
	}
	return ok
}

// must checks that there was no error; nothing after it would make sense otherwise.
func must(name string, err error) {
	if !check(name, err == nil, err) {
		finish()
	}
}

func finish() {
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if failed > 0 {
		os.Exit(1)
	}
	os.Exit(0)
}

// refused checks that the library read a refusal as one of the API, with this status.
func refused(name string, err error, status int) {
	var answer *godo.ErrorResponse
	ok := errors.As(err, &answer) && answer.Response.StatusCode == status &&
		answer.Message != "" && answer.RequestID != ""
	check(name, ok, err)
}

func create(name string, gigabytes int64) (*godo.Volume, error) {
	request := &godo.VolumeCreateRequest{Region: region, Name: name, SizeGigaBytes: gigabytes}
	volume, _, err := client.Storage.CreateVolume(ctx, request)
	return volume, err
}

func finished(volume string, action *godo.Action, err error) error {
	for err == nil && action.Status == godo.ActionInProgress {
		time.Sleep(10 * time.Millisecond)
		action, _, err = client.StorageActions.Get(ctx, volume, action.ID)
	}
	if err == nil && action.Status != godo.ActionCompleted {
		err = fmt.Errorf("action %d is %s", action.ID, action.Status)
	}
	return err
}

func attach(volume string, droplet int) error {
	action, _, err := client.StorageActions.Attach(ctx, volume, droplet)
	return finished(volume, action, err)
}

func detach(volume string, droplet int) error {
	action, _, err := client.StorageActions.DetachByDropletID(ctx, volume, droplet)
	return finished(volume, action, err)
}

func control(method, path, body string) error {
	request, err := http.NewRequest(method, os.Getenv("SIM_URL")+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s", method, path, answer.Status)
	}
	return nil
}

func main() {
	var cancel context.CancelFunc
	ctx, cancel = context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var err error
	client, err = godo.New(&http.Client{Transport: bearer{}}, godo.SetBaseURL(os.Getenv("SIM_URL")))
	must("the client takes the address", err)
	must("the simulator starts empty", control("DELETE", "/sim/v1/everything", ""))

	droplets := lookAround()
	volume := oneVolume(droplets)
	snapshots(volume)
	manyVolumes()
	refusals(volume, droplets)
	spentBudget()

	must("the simulator is left empty", control("DELETE", "/sim/v1/everything", ""))
	finish()
}

type bearer struct{}

func (bearer) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Set("Authorization", "Bearer "+os.Getenv("SIM_TOKEN"))
	return http.DefaultTransport.RoundTrip(request)
}

func lookAround() []godo.Droplet {
	account, answer, err := client.Account.Get(ctx)
	must("the account is read", err)
	check("the account is active", account.Status == "active", account)
	check("the budget is in the headers", answer.Rate.Limit > 0 && answer.Rate.Remaining > 0, answer.Rate)
	regions, _, err := client.Regions.List(ctx, &godo.ListOptions{PerPage: 200})
	must("the regions are listed", err)
	found := false
	for _, one := range regions {
		found = found || one.Slug == region
	}
	check("the region is among them", found, regions)
	droplets, _, err := client.Droplets.List(ctx, &godo.ListOptions{PerPage: 200})
	must("the droplets are listed", err)
	if !check("there are two droplets at least", len(droplets) >= 2, len(droplets)) {
		finish()
	}
	droplet, _, err := client.Droplets.Get(ctx, droplets[0].ID)
	must("a droplet is read", err)
	check("the droplet is in the region", droplet.Region.Slug == region, droplet.Region)
	return droplets
}

func oneVolume(droplets []godo.Droplet) *godo.Volume {
	volume, err := create("godo-one", 2)
	must("a volume is created", err)
	check("the volume is as asked", volume.Name == "godo-one" && volume.SizeGigaBytes == 2 &&
		volume.Region.Slug == region && len(volume.DropletIDs) == 0 && !volume.CreatedAt.IsZero(), volume)
	named, _, err := client.Storage.ListVolumes(ctx, &godo.ListVolumeParams{Name: "godo-one", Region: region})
	must("a volume is looked for by name", err)
	check("exactly that one is found", len(named) == 1 && named[0].ID == volume.ID, named)

	must("the volume is attached", attach(volume.ID, droplets[0].ID))
	volume, _, err = client.Storage.GetVolume(ctx, volume.ID)
	must("the volume is read", err)
	check("the volume is on the droplet",
		len(volume.DropletIDs) == 1 && volume.DropletIDs[0] == droplets[0].ID, volume.DropletIDs)
	droplet, _, err := client.Droplets.Get(ctx, droplets[0].ID)
	must("the droplet is read", err)
	check("the droplet has the volume", len(droplet.VolumeIDs) == 1 && droplet.VolumeIDs[0] == volume.ID,
		droplet.VolumeIDs)

	action, _, err := client.StorageActions.Resize(ctx, volume.ID, 3, region)
	must("the attached volume is resized", finished(volume.ID, action, err))
	must("the volume is detached", detach(volume.ID, droplets[0].ID))
	volume, _, err = client.Storage.GetVolume(ctx, volume.ID)
	must("the volume is read again", err)
	check("the volume is larger and nowhere", volume.SizeGigaBytes == 3 && len(volume.DropletIDs) == 0, volume)
	actions, _, err := client.StorageActions.List(ctx, volume.ID, nil)
	must("the volume's actions are listed", err)
	check("there were three actions", len(actions) == 3, actions)
	return volume
}

func snapshots(volume *godo.Volume) {
	request := &godo.SnapshotCreateRequest{VolumeID: volume.ID, Name: "godo-snapshot"}
	snapshot, _, err := client.Storage.CreateSnapshot(ctx, request)
	must("a snapshot is made", err)
	check("the snapshot is of the volume",
		snapshot.ResourceID == volume.ID && snapshot.SizeGigaBytes == 3, snapshot)
	ofVolume, _, err := client.Storage.ListSnapshots(ctx, volume.ID, nil)
	must("the volume's snapshots are listed", err)
	check("there is one", len(ofVolume) == 1 && ofVolume[0].ID == snapshot.ID, ofVolume)
	all, _, err := client.Snapshots.ListVolume(ctx, nil)
	must("all snapshots of volumes are listed", err)
	check("it is among them", len(all) == 1 && all[0].ID == snapshot.ID, all)
	copied, _, err := client.Storage.CreateVolume(ctx, &godo.VolumeCreateRequest{
		Region: region, Name: "godo-copy", SizeGigaBytes: 9, SnapshotID: snapshot.ID,
	})
	must("a volume is made of the snapshot", err)
	check("the volume has the snapshot's size", copied.SizeGigaBytes == 3, copied)
	_, err = client.Storage.DeleteSnapshot(ctx, snapshot.ID)
	must("the snapshot is deleted", err)
	_, _, err = client.Storage.GetSnapshot(ctx, snapshot.ID)
	refused("the snapshot is unknown then", err, 404)
	_, err = client.Storage.DeleteVolume(ctx, copied.ID)
	must("the copy is deleted", err)
}

func manyVolumes() {
	var err error
	for number := range 44 {
		if _, err = create(fmt.Sprintf("godo-many-%d", number), 1); err != nil {
			break
		}
	}
	must("44 more volumes are created", err)
	seen := map[string]bool{}
	var sizes []int
	options := &godo.ListOptions{Page: 1, PerPage: 20}
	for {
		volumes, answer, err := client.Storage.ListVolumes(ctx, &godo.ListVolumeParams{ListOptions: options})
		must(fmt.Sprintf("page %d is read", options.Page), err)
		sizes = append(sizes, len(volumes))
		for _, volume := range volumes {
			seen[volume.ID] = true
		}
		check("the total is 45", answer.Meta.Total == 45, answer.Meta)
		if answer.Links.IsLastPage() || len(sizes) > 3 {
			break
		}
		page, err := answer.Links.CurrentPage()
		must("the page's number follows from its links", err)
		check("the page's number is right", page == options.Page, page)
		options.Page++
	}
	check("the pages have 20, 20 and 5", fmt.Sprint(sizes) == "[20 20 5]", sizes)
	check("every volume was listed once", len(seen) == 45, len(seen))
}

func refusals(volume *godo.Volume, droplets []godo.Droplet) {
	_, err := create("Not_A_Name", 1)
	refused("a bad name is refused", err, 422)
	_, err = create("godo-one", 1)
	refused("a second volume of a name is refused", err, 409)
	_, _, err = client.Storage.GetVolume(ctx, "00000000-0000-4000-8000-00000000dead")
	refused("an unknown volume is unknown", err, 404)
	refused("an unknown droplet is unknown", attach(volume.ID, 999999), 404)
	must("the volume is attached again", attach(volume.ID, droplets[0].ID))
	refused("a second attach is refused", attach(volume.ID, droplets[1].ID), 422)
	_, err = client.Storage.DeleteVolume(ctx, volume.ID)
	refused("an attached volume is not deleted", err, 409)
	must("the volume is detached again", detach(volume.ID, droplets[0].ID))
	refused("a second detach is refused", detach(volume.ID, droplets[0].ID), 422)

	many, _, err := client.Storage.ListVolumes(ctx, &godo.ListVolumeParams{
		ListOptions: &godo.ListOptions{PerPage: 200},
	})
	must("all volumes are listed on one page", err)
	err = nil
	for number := 0; number < 7 && err == nil; number++ {
		err = attach(many[number].ID, droplets[1].ID)
	}
	must("seven volumes are attached to one droplet", err)
	refused("a full droplet takes no more", attach(many[7].ID, droplets[1].ID), 422)
}

func spentBudget() {
	must("a spent budget is asked for",
		control("PUT", "/sim/v1/faults", `[{"times":1,"effect":{"status":429,"retry_after_s":1}}]`))
	_, _, err := client.Account.Get(ctx)
	refused("a spent budget is told", err, 429)
	var answer *godo.ErrorResponse
	if errors.As(err, &answer) {
		check("the library shows when to come again", answer.Response.Header.Get("Retry-After") == "1",
			answer.Response.Header)
	}
	_, _, err = client.Account.Get(ctx)
	must("there is a budget again", err)
	must("the faults are taken back", control("PUT", "/sim/v1/faults", "[]"))
}
