#!/bin/bash
# Makes the files of a guest in the present folder: root.raw, vmlinux and initrd.
# usage: make.sh SUITE PACKAGES FOLDER-WITH-SCRIPTS <LINES-OF-SOURCES
set -euo pipefail
suite=$1 packages=$2 scripts=$3

# The kernel is unpacked, not installed: the machine that this runs on has its own.
kernel=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/^ *Depends: *\(linux-image-[^ ]*\)$/\1/p' | head -1)
[ -n "$kernel" ] || { echo "apt knows no kernel package linux-image-cloud-amd64" >&2; exit 1; }
apt-get -qq -o APT::Sandbox::User=root download "$kernel"
dpkg --extract "$kernel"_*.deb kernel
version=${kernel#linux-image-}

mmdebstrap --quiet --variant=minbase --include="$packages" \
  --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
  --dpkgopt='path-exclude=/usr/share/locale/*' "$suite" root -
mkdir -p root/lib/modules
cp -a "kernel/lib/modules/$version" root/lib/modules/
depmod -b root "$version"
install -m 755 "$scripts/init" root/sbin/guest-init
truncate -s 1G root.raw
mke2fs -q -t ext4 -E root_owner=0:0 -d root root.raw

# What boots first: it puts a layer of memory over the root filesystem, which stays read-only.
if ldd "$(command -v busybox)" >/dev/null 2>&1; then
  echo "this busybox needs libraries, which are not there yet: install busybox-static" >&2
  exit 1
fi
mkdir -p first/{bin,dev,proc,new,ro,rw,modules}
cp "$(command -v busybox)" first/bin/busybox
for name in sh mount insmod switch_root sleep mkdir; do ln -s busybox "first/bin/$name"; done
number=100
for module in virtio_pci virtio_blk ext4 overlay; do
  modprobe -d root -S "$version" --show-depends "$module" | sed -n 's/^insmod //p'
done | while read -r file _; do
  number=$((number + 1))
  [ -n "$(find first/modules -name "*-${file##*/}")" ] || cp "$file" "first/modules/$number-${file##*/}"
done
install -m 755 "$scripts/first-init" first/init
(cd first && find . | cpio --quiet -o -H newc) >initrd

# The kernel as it is in memory: having the guest unpack it itself costs up to a second at each boot.
image="kernel/boot/vmlinuz-$version"
unpack() { # the unpacking program, and the pattern of its files' first bytes
  local at
  for at in $(LC_ALL=C grep -aobP "$2" "$image" | cut -d: -f1); do
    # It complains of what follows in the file.
    tail -c "+$((at + 1))" "$image" | "$1" -dc >vmlinux 2>unpacking.log || true
    [ "$(head -c 4 vmlinux | tail -c 3)" = ELF ] && return 0
  done
  return 1
}
unpack lz4 '\x02\x21\x4c\x18' || unpack xz '\xfd7zXZ\x00' || unpack zstd '\x28\xb5\x2f\xfd' \
  || unpack gzip '\x1f\x8b\x08' || { echo "$image is packed in an unknown way" >&2; exit 1; }
rm -rf root first kernel unpacking.log ./*.deb
