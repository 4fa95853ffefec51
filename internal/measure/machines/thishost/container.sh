set -e
dir=/mnt/containers/$1 group=$2
shift 2
mkdir -p "$dir/upper" "$dir/work" "$dir/merged"
mount -t overlay overlay -o "lowerdir=/,upperdir=$dir/upper,workdir=$dir/work" "$dir/merged"
exec nerdctl run --detach --cgroup-parent "/$group" --volume /usr/local:/usr/local:ro "$@" \
	--rootfs "$dir/merged" /bin/sh -c 'trap exit TERM; while :; do sleep 3600 & wait; done'
