"""A foreign client of the simulated cloud: DigitalOcean's own Python library.

It does what a storage driver does and checks that the library understands every answer, the
errors included. It takes the simulator's address and token from SIM_URL and SIM_TOKEN, starts from
and leaves an empty cloud, prints a line for each check, and exits with 1 if one failed.
"""

import os
import sys
import time
import urllib.request

from azure.core.exceptions import HttpResponseError, ResourceExistsError
from pydo import Client

REGION = "ams1"
URL = os.environ["SIM_URL"]
# The library sends bearer tokens over http only when told so on every call. It repeats requests
# that were answered with 429; here every answer is to be seen.
PLAIN = {"enforce_https": False}

IDS = {
    404: "not_found",
    409: "conflict",
    422: "unprocessable_entity",
    429: "too_many_requests",
}

client = Client(os.environ["SIM_TOKEN"], endpoint=URL, retry_total=0)
counts = {"passed": 0, "failed": 0}


def check(name, ok, detail=""):
    counts["passed" if ok else "failed"] += 1
    print(f"ok     {name}" if ok else f"FAILED {name}: {detail}")


def refused(name, status, call, kind=None):
    """Checks that the library reads a refusal as one of the API, with this status.

    It raises what the document does not name, and hands out as an answer what the document does.
    """
    try:
        body = call() or {}
        raised = None
    except HttpResponseError as error:
        body = error.response.json()
        raised = error
    understood = body.get("id") == IDS[status] and bool(body.get("message"))
    if raised is not None:
        understood = understood and raised.status_code == status
    if kind is not None:
        understood = understood and isinstance(raised, kind)
    check(name, understood, repr(raised or body))


def control(method, path, body=b""):
    request = urllib.request.Request(URL + path, data=body, method=method)
    with urllib.request.urlopen(request) as answer:
        return answer.read()


def create(name, gigabytes, **more):
    body = {"name": name, "size_gigabytes": gigabytes, "region": REGION, **more}
    return client.volumes.create(body=body, **PLAIN)


def act(volume, **body):
    """Starts an action and waits until it is over."""
    answer = client.volume_actions.post_by_id(volume, body=body, **PLAIN)
    if "action" not in answer:
        return answer
    action = answer["action"]
    while action["status"] == "in-progress":
        time.sleep(0.01)
        action = client.volume_actions.get(volume, action["id"], **PLAIN)["action"]
    return {"action": action}


def acted(name, volume, **body):
    answer = act(volume, **body)
    check(name, answer.get("action", {}).get("status") == "completed", answer)


def read(volume):
    return client.volumes.get(volume, **PLAIN)["volume"]


def look_around():
    account = client.account.get(**PLAIN)["account"]
    check("the account is active", account["status"] == "active", account)
    regions = client.regions.list(per_page=200, **PLAIN)["regions"]
    check("the region is listed", any(region["slug"] == REGION for region in regions), regions)
    droplets = client.droplets.list(per_page=200, **PLAIN)["droplets"]
    check("there are two droplets at least", len(droplets) >= 2, droplets)
    one = client.droplets.get(droplets[0]["id"], **PLAIN)["droplet"]
    check("a droplet is read", one["region"]["slug"] == REGION, one)
    return [droplet["id"] for droplet in droplets]


def one_volume(droplets):
    volume = create("pydo-one", 2)["volume"]
    asked = volume["name"] == "pydo-one" and volume["size_gigabytes"] == 2
    check("a volume is created", asked and volume["droplet_ids"] == [], volume)
    named = client.volumes.list(name="pydo-one", region=REGION, **PLAIN)["volumes"]
    check("it is found by name", [one["id"] for one in named] == [volume["id"]], named)
    volume = volume["id"]
    acted("it is attached", volume, type="attach", droplet_id=droplets[0])
    check("it is on the droplet", read(volume)["droplet_ids"] == [droplets[0]], read(volume))
    there = client.droplets.get(droplets[0], **PLAIN)["droplet"]["volume_ids"]
    check("the droplet has it", there == [volume], there)
    acted("it is resized while attached", volume, type="resize", size_gigabytes=3)
    acted("it is detached", volume, type="detach", droplet_id=droplets[0])
    after = read(volume)
    check("it is larger", after["size_gigabytes"] == 3 and after["droplet_ids"] == [], after)
    body = {"type": "attach", "volume_name": "pydo-one", "region": REGION, "droplet_id": droplets[0]}
    action = client.volume_actions.post(body=body, **PLAIN)["action"]
    while action["status"] == "in-progress":
        time.sleep(0.01)
        action = client.actions.get(action["id"], **PLAIN)["action"]
    check("it is attached by name", read(volume)["droplet_ids"] == [droplets[0]], read(volume))
    acted("it is detached once more", volume, type="detach", droplet_id=droplets[0])
    actions = client.volume_actions.list(volume, **PLAIN)["actions"]
    check("there were five actions", len(actions) == 5, actions)
    return volume


def snapshots(volume):
    made = client.volume_snapshots.create(volume, body={"name": "pydo-snapshot"}, **PLAIN)["snapshot"]
    check("a snapshot is made", made["resource_id"] == volume and made["size_gigabytes"] == 3, made)
    of_volume = client.volume_snapshots.list(volume, **PLAIN)["snapshots"]
    check("it is the volume's", [one["id"] for one in of_volume] == [made["id"]], of_volume)
    listed = client.snapshots.list(resource_type="volume", **PLAIN)["snapshots"]
    check("it is among all", [one["id"] for one in listed] == [made["id"]], listed)
    copy = create("pydo-copy", 9, snapshot_id=made["id"])["volume"]
    check("a volume is made of it, of its size", copy["size_gigabytes"] == 3, copy)
    client.volume_snapshots.delete_by_id(made["id"], **PLAIN)
    refused("it is deleted", 404, lambda: client.volume_snapshots.get_by_id(made["id"], **PLAIN))
    client.volumes.delete(copy["id"], **PLAIN)
    refused("the copy is deleted", 404, lambda: client.volumes.get(copy["id"], **PLAIN))


def many_volumes():
    for number in range(44):
        create(f"pydo-many-{number}", 1)
    sizes, seen, page = [], set(), 1
    while True:
        answer = client.volumes.list(per_page=20, page=page, **PLAIN)
        sizes.append(len(answer["volumes"]))
        seen.update(volume["id"] for volume in answer["volumes"])
        check(f"page {page} tells the total", answer["meta"]["total"] == 45, answer["meta"])
        if "next" not in answer["links"].get("pages", {}) or page > 3:
            break
        page += 1
    check("the pages have 20, 20 and 5", sizes == [20, 20, 5], sizes)
    check("every volume was listed once", len(seen) == 45, len(seen))


def refusals(volume, droplets):
    refused("a bad name is refused", 422, lambda: create("Not_A_Name", 1))
    refused("a second volume of a name is refused", 409, lambda: create("pydo-one", 1),
            ResourceExistsError)
    unknown = lambda: act(volume, type="attach", droplet_id=999999)
    refused("an unknown droplet is unknown", 404, unknown)
    acted("the volume is attached again", volume, type="attach", droplet_id=droplets[0])
    second = lambda: act(volume, type="attach", droplet_id=droplets[1])
    refused("a second attach is refused", 422, second)
    refused("an attached volume is not deleted", 409, lambda: client.volumes.delete(volume, **PLAIN),
            ResourceExistsError)
    acted("the volume is detached again", volume, type="detach", droplet_id=droplets[0])
    again = lambda: act(volume, type="detach", droplet_id=droplets[0])
    refused("a second detach is refused", 422, again)
    every = client.volumes.list(per_page=200, **PLAIN)["volumes"]
    for number in range(7):
        acted(f"volume {number + 1} of 7 is attached", every[number]["id"], type="attach",
              droplet_id=droplets[1])
    full = lambda: act(every[7]["id"], type="attach", droplet_id=droplets[1])
    refused("a full droplet takes no more", 422, full)


def spent_budget():
    control("PUT", "/sim/v1/faults", b'[{"times":1,"effect":{"status":429,"retry_after_s":1}}]')
    refused("a spent budget is told", 429, lambda: client.account.get(**PLAIN))
    check("there is a budget again", "account" in client.account.get(**PLAIN))
    control("PUT", "/sim/v1/faults", b"[]")


def main():
    control("DELETE", "/sim/v1/everything")
    droplets = look_around()
    volume = one_volume(droplets)
    snapshots(volume)
    many_volumes()
    refusals(volume, droplets)
    spent_budget()
    control("DELETE", "/sim/v1/everything")


try:
    main()
except Exception as error:  # A check that cannot even be made has failed.
    check("the client went through", False, repr(error))
print(f"{counts['passed']} passed, {counts['failed']} failed")
sys.exit(1 if counts["failed"] else 0)
