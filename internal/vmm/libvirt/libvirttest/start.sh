# Starts libvirtd. $1 is a directory for its socket. Files that it writes below
# /etc, /run and /var are in memory and disappear with this mount namespace.
mount --make-rprivate /
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mkdir "$1/over"
mount -t tmpfs tmpfs "$1/over"
for dir in /etc /run /var; do
	mkdir -p "$1/over$dir/upper" "$1/over$dir/work"
	mount -t overlay -o "lowerdir=$dir,upperdir=$1/over$dir/upper,workdir=$1/over$dir/work" overlay "$dir"
done
# The QEMU driver needs its Debian user, even if everything runs as root.
grep -q ^libvirt-qemu: /etc/passwd || echo libvirt-qemu:x:64055:64055::/:/usr/sbin/nologin >>/etc/passwd
grep -q ^libvirt-qemu: /etc/group || echo libvirt-qemu:x:64055: >>/etc/group
# /dev/kvm may open without working, and no domain here needs it.
[ ! -e /dev/kvm ] || mount --bind /dev/null /dev/kvm
mkdir -p /etc/libvirt
cat >/etc/libvirt/qemu.conf <<END
user = "root"
group = "root"
security_driver = "none"
cgroup_controllers = []
namespaces = []
stdio_handler = "file"
remember_owner = 0
END
cat >"$1/libvirtd.conf" <<END
unix_sock_dir = "$1"
auth_unix_ro = "none"
auth_unix_rw = "none"
log_outputs = "3:stderr"
END
# The shell stays to reap the domains' processes, which libvirtd disowns.
libvirtd --config "$1/libvirtd.conf" --pid-file "$1/pid" &
wait
