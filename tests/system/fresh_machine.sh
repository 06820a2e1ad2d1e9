#!/usr/bin/env bash
# Proves that a new Debian 12 with nothing but git and sudo can run the project: makes one with
# debootstrap in a folder (a chroot), clones this repository into it and runs each given ./run command
# there as an ordinary user, timing it. Needs root, debootstrap, and this machine's own apt sources.
#
# usage: fresh_machine.sh DIR "demo --seconds 180 --json" test …
# DIR is made if missing and kept, so that a second call can go on; remove it with --remove DIR.
set -euo pipefail
[ "$(id -u)" = 0 ] || { echo "fresh_machine: needs root" >&2; exit 2; }
repository=$(cd "$(dirname "$0")/../.." && pwd)

unmount_all() {
    local point
    for point in dev/shm dev/pts dev proc sys; do umount -l "$machine/$point" 2>/dev/null || true; done
}

if [ "${1:-}" = --remove ]; then
    machine=$(realpath "$2")
    unmount_all
    grep -q " $machine" /proc/mounts && { echo "fresh_machine: something is still mounted" >&2; exit 1; }
    rm -rf --one-file-system "$machine"
    exit
fi
[ $# -ge 2 ] || { sed -n '2,8p' "$0" >&2; exit 2; }
mkdir -p "$1"
machine=$(realpath "$1")
shift
trap unmount_all EXIT

# The mirror is whatever this machine uses for Debian.
mirror=$(find /etc/apt -name '*.sources' -o -name '*.list' | xargs cat 2>/dev/null |
    sed -n 's/^URIs: *//p; s/^deb [^h]*\(http[^ ]*\).*/\1/p' | grep -E 'debian/?$' | sort -u | sed -n 1p)
[ -n "$mirror" ] || { echo "fresh_machine: no Debian mirror in /etc/apt" >&2; exit 2; }
if [ ! -e "$machine/etc/debian_version" ]; then
    command -v debootstrap >/dev/null || apt-get install -y -q debootstrap >&2
    echo "==> debootstrap of Debian 12 into $machine" >&2
    debootstrap --variant=minbase --include=ca-certificates,git,sudo bookworm "$machine" "$mirror" >&2
    for path in /etc/apt/sources.list.d /etc/apt/apt.conf.d /etc/apt/auth.conf.d /usr/local/share/ca-certificates; do
        [ -d $path ] && mkdir -p "$machine$path" && cp -a $path/. "$machine$path/"
    done
    # Only Debian itself: other vendors' sources of this machine stay out.
    find "$machine/etc/apt/sources.list.d" -type f ! -name '*debian*' -delete
    cp -a /usr/share/keyrings/. "$machine/usr/share/keyrings/"
    cp -a /etc/ssl/certs/. "$machine/etc/ssl/certs/"
    [ -z "$(ls "$machine/etc/apt/sources.list.d")" ] || : >"$machine/etc/apt/sources.list"
    chroot "$machine" useradd -m -s /bin/bash user
    echo 'user ALL=(ALL) NOPASSWD:ALL' >"$machine/etc/sudoers.d/user"
    # The registry settings of this machine, wherever npm keeps them.
    for path in /root/.npmrc /usr/etc/npmrc /etc/npmrc; do
        [ -f $path ] && grep -vE '^(nodedir|prefix)' $path >>"$machine/home/user/.npmrc"
    done
    chroot "$machine" chown -R user:user /home/user
fi
cp -L /etc/resolv.conf "$machine/etc/resolv.conf"
cp /etc/hosts "$machine/etc/hosts"
mount -t proc proc "$machine/proc"
mount -t sysfs sys "$machine/sys"
mount --rbind /dev "$machine/dev" && mount --make-rslave "$machine/dev"

rm -rf "$machine/home/user/source.git" "$machine/home/user/raven"
git clone -q --bare "$repository" "$machine/home/user/source.git"
chroot "$machine" chown -R user:user /home/user/source.git
as_user() {
    chroot "$machine" sudo -u user env -i HOME=/home/user USER=user LANG=C.UTF-8 \
        PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin bash -c "$1"
}
as_user "cd ~ && git clone -q source.git raven"
status=0
for command in "$@"; do
    echo "==> ./run $command" >&2
    started=$(date +%s)
    as_user "cd ~/raven && ./run $command" || status=1
    echo "==> ./run $command took $(($(date +%s) - started)) s, status $status" >&2
    [ $status = 0 ] || break
done
exit $status
