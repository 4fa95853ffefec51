set -e
root=$1 script=$2 out=$3
shift 3
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmp "$root/tmp"
mount -t tmpfs -o mode=0755 programs "$root/usr/local"
ip link set lo up
while [ $# -gt 1 ]; do
	mkdir -p "$root${2%/*}"
	cp "$1" "$root$2"
	touch -d @0 "$root$2"
	shift 2
done
mkdir "$root/tmp/out"
chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C HOME=/tmp sh -c "$script" derive /tmp/out
find "$root/tmp/out" -maxdepth 1 -type f -exec cp --target-directory "$out" {} + # no links: they would lead to files outside of the root
