set -e
root=$1 work=$2
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=1777 tmp "$root/tmp"
mount -t tmpfs run "$root/run"
mount -t tmpfs -o mode=0700 home "$root/root"
mount --bind "$work" "$root/mnt"
mount -t tmpfs -o mode=0755 programs "$root/usr/local"
mkdir -p "$root/run/lib/upper" "$root/run/lib/work"
mount -t overlay overlay -o "lowerdir=$root/var/lib,upperdir=$root/run/lib/upper,workdir=$root/run/lib/work" "$root/var/lib"
cd "$root"
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
pivot_root . .
umount -l .
trap exit TERM
echo ready
sleep infinity &
wait $!
