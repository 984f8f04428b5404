#!/bin/busybox sh
# shellcheck shell=dash
# PID 1 of the test guest at first, in place of the substrate's init. Mounts, loads the modules of /modules.list, brings
# eth0 up. Makes the container's root of /image (or of the disk that /image.disk names) with the instance's disk above
# it, so that /run and /tmp survive a hard stop. Mounts the volumes of /volumes there. Starts the oracle, if the
# instance's disk has one. Then becomes launch.c.
/bin/busybox --install -s /bin
export PATH=/bin

# disk NAME PATH HOW: the device appears some time after its driver was loaded.
disk() {
  until [ -e "/dev/$1" ]; do usleep 10000; done
  mkdir -p "$2"
  mount -t ext4 -o "$3" "/dev/$1" "$2"
}

# above LOWER NAME PATH: what is written to PATH goes to the instance's disk, in a directory of that name.
above() {
  mkdir -p "/disk/$2/upper" "/disk/$2/work" "$3"
  mount -t overlay -o "lowerdir=$1,upperdir=/disk/$2/upper,workdir=/disk/$2/work" overlay "$3"
}

# place TYPE PATH
place() {
  mkdir -p "$2"
  mount -t "$1" "$1" "$2"
}

place proc /proc
place devtmpfs /dev
exec </dev/console >/dev/console 2>&1
while read -r module; do insmod "/modules/$module"; done </modules.list
rm -r /modules
ifconfig lo 127.0.0.1 up
until grep -q eth0 /proc/net/dev; do usleep 10000; done
ifconfig eth0 10.0.2.15 netmask 255.255.255.0 up
disk vda /disk rw
[ ! -e /image.disk ] || disk "$(cat /image.disk)" /image ro
above /image root /sandbox
while read -r name path how; do
  if [ "$how" = overlay ]; then
    disk "$name" "/volume-$name" ro
    above "/volume-$name" "$name" "/sandbox$path"
  else disk "$name" "/sandbox$path" "$how"; fi
done </volumes
place proc /sandbox/proc
place sysfs /sandbox/sys
place cgroup2 /sandbox/sys/fs/cgroup
place devtmpfs /sandbox/dev
place devpts /sandbox/dev/pts
mkdir -m 1777 /sandbox/dev/shm
[ ! -x /disk/oracle ] || /disk/oracle &
exec /launch
